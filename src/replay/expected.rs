//! What a file of votes leads to when its lines take effect in order.

use std::collections::{HashMap, HashSet};

use super::file::{Vote, Votes};
use crate::domain::Value;

/// How many votes of an item are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub ups: i64,
    pub downs: i64,
}

/// The votes that are held after the last line.
#[derive(Debug, Default)]
pub struct Expected {
    /// The held votes of each of [`Votes::items`].
    pub items: Vec<Held>,
    /// How many voters hold a vote on any item.
    pub voters: i64,
    /// The lines that move a vote from one choice of a poll to another.
    moves: HashSet<usize>,
}

impl Expected {
    /// What this file leads to. `max_choices`: how many choices of a poll a voter may hold, 0 for
    /// any number; `None` without a poll.
    pub fn of(votes: &Votes, max_choices: Option<usize>) -> Self {
        let mut expected = Self::default();
        let mut held: HashMap<&str, HashMap<usize, Value>> = HashMap::new();
        for at in 0..votes.len() {
            let Some(Vote {
                item,
                voter: Some(voter),
                value,
            }) = votes.get(at)
            else {
                continue;
            };
            let held = held.entry(voter).or_default();
            let Some(value) = value else {
                held.remove(&item);
                continue;
            };
            match max_choices {
                Some(1) if !held.is_empty() && !held.contains_key(&item) => {
                    expected.moves.insert(at);
                    held.clear();
                }
                // The server refuses one choice too many.
                Some(most) if most > 1 && held.len() >= most && !held.contains_key(&item) => continue,
                _ => {}
            }
            held.insert(item, value);
        }
        expected.items = vec![Held::default(); votes.items.len()];
        for (item, value) in held.values().flatten() {
            let counts = &mut expected.items[*item];
            *(if *value == Value::UP {
                &mut counts.ups
            } else {
                &mut counts.downs
            }) += 1;
        }
        let holds_one = held.values().filter(|held| !held.is_empty());
        expected.voters = i64::try_from(holds_one.count()).unwrap_or(i64::MAX);
        expected
    }

    /// Whether this line moves a vote.
    pub fn moves(&self, at: usize) -> bool {
        self.moves.contains(&at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::{self, Columns, Values};
    use super::*;
    use crate::files::Lines;

    fn expected(file: &str, max_choices: Option<usize>) -> (Vec<(i64, i64)>, i64, Vec<usize>) {
        let columns = Columns {
            voter: 1,
            item: 2,
            values: Values::Rating {
                column: 3,
                neutral: 0.0,
            },
        };
        let votes = file::read(
            Lines::new("votes".as_ref(), file.as_bytes(), 1000),
            columns,
            |line, why| panic!("{line}: {why}"),
        );
        let votes = votes.expect("memory reads");
        let expected = Expected::of(&votes, max_choices);
        let items = expected.items.iter().map(|held| (held.ups, held.downs));
        let moves = (0..votes.len()).filter(|at| expected.moves(*at));
        (items.collect(), expected.voters, moves.collect())
    }

    #[test]
    fn the_last_line_of_a_voter_and_an_item_counts() {
        let file = "ada x 5\nada x -1\nbob x 2\nada y 1\nada y 0\ncyd y -3\ncyd y -4\n";
        assert_eq!(expected(file, None), (vec![(1, 1), (0, 1)], 3, vec![]));
    }

    #[test]
    fn with_one_choice_a_line_moves_the_vote_and_only_the_choice_that_is_held_can_be_taken_back() {
        let file = "ada x 1\nada y 1\nada x 0\nbob x 1\nbob x 1\nbob x 0\nada z 1\n";
        assert_eq!(
            expected(file, Some(1)),
            (vec![(0, 0), (0, 0), (1, 0)], 1, vec![1, 6])
        );
    }

    #[test]
    fn with_two_choices_a_third_is_refused_and_with_any_number_none_is() {
        let file = "ada x 1\nada y 1\nada z 1\nada x 1\nada x 0\nada w 1\n";
        // x, y, z, w
        assert_eq!(expected(file, Some(2)).0, [(0, 0), (1, 0), (0, 0), (1, 0)]);
        assert_eq!(expected(file, Some(0)).0, [(0, 0), (1, 0), (1, 0), (1, 0)]);
    }
}
