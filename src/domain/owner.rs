//! Which Tally the keys in Redis belong to.

use std::fmt;

/// A Tally, by its database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Drawn at the first migration. A restored dump has it too.
    pub id: String,
    /// The database's name, for a human reader.
    pub database: String,
}

impl Owner {
    /// The owner's mark in Redis: `<id> <database>`.
    pub fn mark(&self) -> String {
        format!("{} {}", self.id, self.database)
    }

    /// The owner that a mark names.
    pub fn of_mark(mark: &str) -> Self {
        let (id, database) = mark.split_once(' ').unwrap_or((mark, ""));
        Self {
            id: id.to_owned(),
            database: database.to_owned(),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} (id {})", self.database, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_its_owner_whatever_its_database_is_called() {
        for database in ["tally", "two words", ""] {
            let owner = Owner {
                id: "6f1c".to_owned(),
                database: database.to_owned(),
            };
            assert_eq!(Owner::of_mark(&owner.mark()), owner);
        }
    }
}
