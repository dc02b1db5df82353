//! Which columns a table has, and where a file has them.

use anyhow::bail;

/// A table that is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Votes,
    Items,
    Polls,
}

impl Table {
    /// Its columns.
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Votes => &VOTE,
            Self::Items => &[
                "id",
                "key",
                "name",
                "takes_down_votes",
                "is_hidden",
                "created_at",
                "rule_id",
                "is_choice",
                "opens_at",
                "closes_at",
                "by_ballot",
                "is_secret",
                "max_votes",
                "is_numbered",
            ],
            Self::Polls => &[
                "id",
                "key",
                "title",
                "max_choices",
                "opens_at",
                "closes_at",
                "shows_results",
                "is_hidden",
                "by_ballot",
                "is_secret",
                "created_at",
            ],
        }
    }

    /// Columns that `tally export` writes and an import does not need.
    fn unused(self) -> &'static [&'static str] {
        match self {
            Self::Votes => &["poll_id"],
            Self::Items => &["up_votes", "down_votes", "counted_at"],
            Self::Polls => &["voter_count", "ballot_count"],
        }
    }

    /// Sets of columns, one of which a file must have.
    fn needs(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Votes => &[&["item_id"], &["item_key"], &["item_name"]],
            Self::Items => &[&["id", "name"], &["key", "name"]],
            Self::Polls => &[&["id", "title"]],
        }
    }
}

/// The columns of votes. [`Vote`](super::votes) names their places.
pub const VOTE: [&str; 11] = [
    "id",
    "item_id",
    "item_key",
    "item_name",
    "voter_id",
    "value",
    "rating",
    "created_at",
    "change_number",
    "number",
    "voided_vote_id",
];

/// Leaves out a column of the file.
const LEFT_OUT: &str = "_";

/// Where a file has a table's columns.
#[derive(Clone, Debug)]
pub enum Columns {
    /// As Tally calls them, and no others.
    Own(Table, Vec<Option<String>>),
    /// A line names them, or each JSON object does: for each column of the table, the file's name of it.
    Named(Table, Vec<Option<String>>),
    /// At these places of each row: for each column of the table. A row has so many fields.
    Placed(Table, Vec<Option<usize>>, usize),
}

impl Columns {
    /// As `--columns` says. None: the file names them as Tally does.
    ///
    /// # Errors
    /// When a column is not one of the table, comes twice, or one is missing that the table needs.
    pub fn of(table: Table, given: &[String]) -> anyhow::Result<Self> {
        let all = table.columns();
        if given.is_empty() {
            let names = all.iter().map(|name| Some((*name).to_owned())).collect();
            return Ok(Self::Own(table, names));
        }
        let are_named = given.iter().any(|one| one.contains('='));
        let mut names = vec![None; all.len()];
        let mut places = vec![None; all.len()];
        for (at, one) in given.iter().enumerate() {
            let (column, theirs) = match one.split_once('=') {
                Some((column, theirs)) => (column, Some(theirs)),
                None => (one.as_str(), None),
            };
            if column == LEFT_OUT && !are_named {
                continue;
            }
            let Some(place) = all.iter().position(|name| *name == column) else {
                bail!(
                    "--columns: there is no column {column}; there are {}",
                    all.join(", ")
                );
            };
            if names[place].is_some() || places[place].is_some() {
                bail!("--columns: {column} comes twice");
            }
            if are_named {
                names[place] = Some(theirs.unwrap_or(column).to_owned());
            } else {
                places[place] = Some(at);
            }
        }
        let columns = if are_named {
            Self::Named(table, names)
        } else {
            Self::Placed(table, places, given.len())
        };
        columns.check(|place| match &columns {
            Self::Own(_, names) | Self::Named(_, names) => names[place].is_some(),
            Self::Placed(_, places, _) => places[place].is_some(),
        })?;
        Ok(columns)
    }

    /// Whether some columns say yes or no.
    pub fn are_of_rules(&self) -> bool {
        self.table() != Table::Votes
    }

    fn table(&self) -> Table {
        match self {
            Self::Own(table, _) | Self::Named(table, _) | Self::Placed(table, ..) => *table,
        }
    }

    fn check(&self, has: impl Fn(usize) -> bool) -> anyhow::Result<()> {
        let all = self.table().columns();
        let has_column = |column: &&str| all.iter().position(|name| name == column).is_some_and(&has);
        let needs = self.table().needs();
        if needs.iter().any(|one| one.iter().all(&has_column)) {
            return Ok(());
        }
        let needs: Vec<String> = needs.iter().map(|one| one.join(" and ")).collect();
        bail!(
            "the file needs the columns {}; if its columns have other names, or none, name them with --columns",
            needs.join(", or ")
        )
    }

    /// Whether a row that has this column must say something in it. A vote without a value is an up-vote; one without
    /// a rating is none.
    pub fn must_be_filled(&self, column: usize) -> bool {
        self.table().columns().get(column) == Some(&"rating")
    }

    /// Where each row has the columns, and how many fields it has. `None`: a line says that.
    pub fn places(&self) -> Option<(Vec<Option<usize>>, usize)> {
        match self {
            Self::Own(..) | Self::Named(..) => None,
            Self::Placed(_, places, total) => Some((places.clone(), *total)),
        }
    }

    /// The file's names of the columns.
    pub fn names(&self) -> impl Iterator<Item = Option<&str>> {
        let names = match self {
            Self::Own(_, names) | Self::Named(_, names) => names.as_slice(),
            Self::Placed(..) => &[],
        };
        names.iter().map(Option::as_deref)
    }

    /// Checks that a file's name of a column is known, unless `--columns` says which are.
    ///
    /// # Errors
    /// When nobody knows what is in it.
    pub fn check_name(&self, name: &str) -> anyhow::Result<()> {
        let Self::Own(table, _) = self else { return Ok(()) };
        if table.columns().contains(&name) || table.unused().contains(&name) {
            return Ok(());
        }
        bail!(
            "there is no column {name:?}; there are {}; if the file's columns have other names, say so, as in \
             --columns {}={name}",
            table.columns().join(", "),
            table.columns()[1]
        )
    }

    /// Finds the columns in a line that names them.
    ///
    /// # Errors
    /// When one is missing that the table needs, comes twice, or there are others than Tally's.
    pub fn find(&self, line: &[Option<String>]) -> anyhow::Result<Vec<Option<usize>>> {
        let place = |name: &str| {
            line.iter()
                .position(|one| one.as_deref().map(str::trim) == Some(name))
        };
        let places: Vec<Option<usize>> = self.names().map(|name| place(name?)).collect();
        self.check(|column| places.get(column).is_some_and(Option::is_some))?;
        for (at, name) in line.iter().enumerate() {
            let name = name.as_deref().unwrap_or_default().trim();
            self.check_name(name)?;
            let is_read = self.names().any(|one| one == Some(name));
            if is_read && places.iter().all(|place| *place != Some(at)) {
                bail!("the column {name} comes twice");
            }
        }
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(table: Table, given: &[&str]) -> anyhow::Result<Columns> {
        let given: Vec<String> = given.iter().map(|one| (*one).to_owned()).collect();
        Columns::of(table, &given)
    }

    #[test]
    fn columns_that_are_not_there_come_twice_or_lack_are_refused_with_what_would_be_right() {
        for (given, words) in [
            (
                &["item", "voter_id"][..],
                "there is no column item; there are id, item_id, item_key",
            ),
            (&["item_id", "item_id"], "item_id comes twice"),
            (
                &["voter_id", "_"],
                "needs the columns item_id, or item_key, or item_name",
            ),
            (&["voter_id=who"], "needs the columns"),
        ] {
            let said = columns(Table::Votes, given)
                .expect_err("it is refused")
                .to_string();
            assert!(said.contains(words), "{said}");
        }
        let named = columns(Table::Votes, &[]).expect("columns");
        let line = [Some("who".to_owned()), None];
        let said = named.find(&line).expect_err("it is refused").to_string();
        assert!(said.contains("needs the columns item_id"), "{said}");
    }
}
