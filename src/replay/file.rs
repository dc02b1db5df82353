//! Reads a file of votes.

use std::collections::HashMap;
use std::io::BufRead;

use crate::domain::{ItemName, Value, VoterId};
use crate::files::{FileError, Lines};

/// Which columns hold what, counted from 1.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// 0: there is no such column, and all votes are anonymous.
    pub voter: usize,
    pub item: usize,
    pub values: Values,
}

/// Where a line says what its vote is worth.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// In no column: all votes are 1.
    Up,
    /// In this column, which holds 1 or −1.
    Column(usize),
    /// In this column, which holds any number. Above `neutral` it is a vote of 1, below it one of
    /// −1. Equal to it, the vote is taken back.
    Rating { column: usize, neutral: f64 },
}

/// A file of votes, in memory. Ten million votes fit in a gigabyte.
#[derive(Debug, Default)]
pub struct Votes {
    /// The names of the items, each once, in the order of their first votes.
    pub items: Vec<String>,
    pub bad_lines: usize,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    item: u32,
    voter: Option<Box<str>>,
    value: Option<Value>,
}

/// One vote of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote<'a> {
    /// The index in [`Votes::items`].
    pub item: usize,
    pub voter: Option<&'a str>,
    /// `None`: the voter's vote is taken back.
    pub value: Option<Value>,
}

impl Votes {
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn get(&self, at: usize) -> Option<Vote<'_>> {
        self.lines.get(at).map(|line| Vote {
            item: line.item as usize,
            voter: line.voter.as_deref(),
            value: line.value,
        })
    }
}

/// Reads votes, one a line. Blank lines and lines that begin with # are skipped. A bad line is
/// skipped too, and reported to `complain` with its number, counted from 1.
///
/// # Errors
/// When the input cannot be read, or is no file of lines.
pub fn read(
    mut lines: Lines<impl BufRead>,
    columns: Columns,
    mut complain: impl FnMut(usize, &str),
) -> Result<Votes, FileError> {
    let mut votes = Votes::default();
    let mut known: HashMap<String, u32> = HashMap::new();
    while let Some((number, line)) = lines.next()? {
        let parsed = match line {
            Ok(text) if text.trim().is_empty() || text.starts_with('#') => continue,
            Ok(text) => parse(text, columns),
            Err(why) => Err(why.to_owned()),
        };
        match parsed {
            Ok((item, voter, value)) => {
                let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
                let item = *known.entry(item).or_insert_with_key(|name| {
                    votes.items.push(name.clone());
                    next
                });
                votes.lines.push(Line { item, voter, value });
            }
            Err(why) => {
                votes.bad_lines += 1;
                complain(number, &why);
            }
        }
    }
    Ok(votes)
}

/// An item's name, a voter, and a value; `None`: take the vote back.
type Parsed = (String, Option<Box<str>>, Option<Value>);

fn parse(line: &str, columns: Columns) -> Result<Parsed, String> {
    // If the line has a comma, commas separate the columns, and a column may have spaces.
    let fields: Vec<&str> = if line.contains(',') {
        line.split(',').map(str::trim).collect()
    } else {
        line.split_whitespace().collect()
    };
    let field = |column: usize, what: &str| {
        fields.get(column - 1).copied().ok_or_else(|| {
            format!(
                "the {what} should be in column {column}, but the line has {}",
                fields.len()
            )
        })
    };
    let item = ItemName::parse(field(columns.item, "item")?.to_owned())
        .map_err(|error| format!("the item's name {error}"))?;
    let voter = match columns.voter {
        0 => None,
        column => {
            let voter =
                VoterId::parse(field(column, "voter")?.to_owned()).map_err(|error| error.to_string())?;
            Some(voter.as_str().into())
        }
    };
    let value = match columns.values {
        Values::Up => Some(Value::UP),
        Values::Column(column) => {
            let text = field(column, "value")?;
            let number = text
                .parse()
                .map_err(|_| format!("value is {text:?}; it takes 1 or -1"))?;
            Some(Value::parse(number).map_err(|error| error.to_string())?)
        }
        Values::Rating { column, neutral } => {
            let text = field(column, "rating")?;
            let rating: Option<f64> = text.parse().ok().filter(|rating: &f64| rating.is_finite());
            match rating {
                None => return Err(format!("rating is {text:?}; it takes a number")),
                Some(rating) if rating > neutral => Some(Value::UP),
                Some(rating) if rating < neutral => Some(Value::DOWN),
                Some(_) => None,
            }
        }
    };
    Ok((item.as_str().to_owned(), voter, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &[u8], voter: usize, item: usize, values: Values) -> (Votes, Vec<(usize, String)>) {
        let mut bad = Vec::new();
        let columns = Columns { voter, item, values };
        let lines = Lines::new("votes".as_ref(), text, 1000);
        let votes = read(lines, columns, |line, why| bad.push((line, why.to_owned()))).expect("memory reads");
        (votes, bad)
    }

    #[test]
    fn columns_are_separated_by_white_space_or_by_commas() {
        let (votes, bad) = read_text(
            b"ada\tx\n# a comment\n\nbob  y\neve,a long name\nada,y\n",
            1,
            2,
            Values::Up,
        );
        assert_eq!(bad, []);
        assert_eq!(votes.items, ["x", "y", "a long name"]);
        let all: Vec<_> = (0..votes.len())
            .filter_map(|at| votes.get(at))
            .map(|vote| (vote.voter, vote.item))
            .collect();
        assert_eq!(
            all,
            [
                (Some("ada"), 0),
                (Some("bob"), 1),
                (Some("eve"), 2),
                (Some("ada"), 1)
            ]
        );
    }

    #[test]
    fn a_voter_is_the_same_with_and_without_a_byte_order_mark() {
        let file = "\u{feff}ada,x\r\nada,y\r\n\u{feff}# a comment\r\n";
        let (votes, bad) = read_text(file.as_bytes(), 1, 2, Values::Up);
        assert_eq!((bad, votes.len()), (vec![], 2));
        let voters: Vec<_> = (0..2).filter_map(|at| votes.get(at)?.voter).collect();
        assert_eq!(voters, ["ada", "ada"]);
    }

    #[test]
    fn a_bad_line_is_reported_with_its_number_and_does_not_stop_the_rest() {
        let (votes, bad) = read_text(
            b"ada x 1\nbob\neve y 2\n\xff z 1\ndan y -1\nkim z up",
            1,
            2,
            Values::Column(3),
        );
        let lines: Vec<usize> = bad.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 3, 4, 6]);
        assert!(
            bad[0].1.contains("column 2") && bad[1].1.contains("1 or -1"),
            "{bad:?}"
        );
        assert_eq!((votes.len(), votes.bad_lines), (2, 4));
        assert_eq!(votes.get(1).and_then(|vote| vote.value), Some(Value::DOWN));
    }

    #[test]
    fn without_a_voter_column_votes_are_anonymous() {
        let (votes, _) = read_text(b"x\nx\n", 0, 1, Values::Up);
        assert_eq!(
            votes.get(1),
            Some(Vote {
                item: 0,
                voter: None,
                value: Some(Value::UP)
            })
        );
    }

    #[test]
    fn a_rating_is_up_down_or_a_vote_taken_back_by_which_side_of_the_neutral_one_it_is_on() {
        let rated = |neutral, text: &[u8]| {
            let (votes, bad) = read_text(text, 1, 2, Values::Rating { column: 3, neutral });
            let values: Vec<Option<Value>> = (0..votes.len())
                .filter_map(|at| votes.get(at))
                .map(|vote| vote.value)
                .collect();
            (values, bad)
        };
        let (up, down) = (Some(Value::UP), Some(Value::DOWN));
        let file = b"a,x,-10\na,x,0\na,x,1\na,x,3.5\na,x,-0\n";
        assert_eq!(rated(0.0, file), (vec![down, None, up, up, None], vec![]));
        assert_eq!(rated(1.0, file), (vec![down, down, None, up, down], vec![]));
        let (values, bad) = rated(0.0, b"a,x,good\na,x,nan\na,x,inf\na,x\na,x,2");
        assert_eq!(values, [up]);
        let lines: Vec<usize> = bad.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4]);
        assert!(
            bad[0].1.contains("\"good\"; it takes a number") && bad[3].1.contains("column 3"),
            "{bad:?}"
        );
    }
}
