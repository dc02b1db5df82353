//! What a row of a file of votes says.

use std::str::FromStr;

use super::records::Fields;
use crate::domain::{ImportId, ItemId, ItemKey, ItemName, Moment, VoterId};

/// The earliest Unix time in seconds: 1973. Smaller numbers are years or dates.
const UNIX_LEAST_SECONDS: f64 = 100_000_000.0;
/// The latest one: the year 2200. Larger numbers are milliseconds, which nobody asked for.
const UNIX_LIMIT_SECONDS: f64 = 7_258_118_400.0;
/// The first µs of the year 1. Postgres writes earlier times in a way of its own.
const YEAR_ONE_MICROS: i64 = -62_135_596_800_000_000;

/// How a row names its item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ItemOf {
    Id(ItemId),
    Key(String),
    Name(String),
}

/// A row that can be read. Its item may not be there.
#[derive(Debug, PartialEq)]
pub struct Row {
    pub item: ItemOf,
    pub voter_id: Option<VoterId>,
    pub value: i16,
    pub change_number: i16,
    pub cast_at: Option<Moment>,
    pub number: Option<i64>,
}

/// Reads what a row says. `import` is the file's: a vote without a voter that was taken back gets a voter, so that it
/// stays known what took it back.
pub fn row(fields: &Fields, neutral: f64, goes_on: bool, import: ImportId) -> Result<Row, String> {
    // In the order of `columns::VOTE`.
    let [
        id,
        item_id,
        item_key,
        item_name,
        voter_id,
        value,
        rating,
        created_at,
        change_number,
        number,
        voided,
    ] = std::array::from_fn(|at| fields.get(at).and_then(Option::as_deref));
    let item = match (item_id, item_key, item_name) {
        (Some(id), ..) => ItemOf::Id(
            id.parse()
                .map_err(|()| format!("the item {id:?} is no id: a positive number"))?,
        ),
        (None, Some(key), _) => {
            ItemKey::parse(key.to_owned()).map_err(|error| format!("the item's key {error}"))?;
            ItemOf::Key(key.to_owned())
        }
        (None, None, Some(name)) => {
            ItemName::parse(name.to_owned()).map_err(|error| format!("the item's name {error}"))?;
            ItemOf::Name(name.to_owned())
        }
        (None, None, None) => return Err("it names no item".to_owned()),
    };
    let value = match (value, rating) {
        (Some("1" | "+1"), _) | (None, None) => 1,
        (Some("-1" | "−1"), _) => -1,
        (Some(other), _) => return Err(format!("the value is {other:?}; it takes 1 or -1")),
        (None, Some(text)) => match text.parse::<f64>() {
            Ok(rating) if rating > neutral => 1,
            Ok(rating) if rating < neutral => -1,
            Ok(rating) if rating == neutral => {
                return Err(format!(
                    "the rating is {neutral}, neither an up-vote nor a down-vote"
                ));
            }
            _ => return Err(format!("the rating is {text:?}; it takes a number")),
        },
    };
    let change_number = match change_number {
        None => 0,
        Some(text) => match text.parse() {
            Ok(number) if number >= 0 => number,
            _ => {
                return Err(format!(
                    "the change number is {text:?}; it takes 0, 1, 2 and so on"
                ));
            }
        },
    };
    let number = match number.map(|text| (text, i64::from_str(text))) {
        None => None,
        Some((_, Ok(number))) if number > 0 => Some(number),
        Some((text, _)) => return Err(format!("the number is {text:?}; it takes 1, 2, 3 and so on")),
    };
    let voter_id = match (voter_id, voided) {
        (Some(text), _) => {
            let parsed = VoterId::parse_stored(text.to_owned());
            Some(parsed.map_err(|error| error.to_string())?)
        }
        (None, None) => None,
        (None, Some(_)) if goes_on => {
            return Err("it takes back, or casts again, a vote of an earlier file that nobody cast; void that one here (tally void)".to_owned());
        }
        (None, Some(vote)) => {
            if id.is_none() || vote.parse::<i64>().is_err() {
                return Err("voided_vote_id takes the id of a vote of this file".to_owned());
            }
            VoterId::parse(format!("import {}, voided vote {vote}", import.0)).ok()
        }
    };
    let cast_at = created_at.map(moment).transpose()?;
    Ok(Row {
        item,
        voter_id,
        value,
        change_number,
        cast_at,
        number,
    })
}

/// Reads a time: RFC 3339; as Postgres writes it (UTC, if it names no zone); or seconds since 1970.
fn moment(text: &str) -> Result<Moment, String> {
    let unreadable = || {
        format!(
            "the time is {text:?}; it takes one like 2030-01-31T18:00:00Z, 2030-01-31 18:00:00+00, or seconds since 1970"
        )
    };
    if let Ok(seconds) = text.parse::<f64>() {
        if !(UNIX_LEAST_SECONDS..=UNIX_LIMIT_SECONDS).contains(&seconds) {
            return Err(unreadable());
        }
        return Ok(Moment::from_micros((seconds * 1e6).round() as i64));
    }
    let (date, time) = text.split_once(['T', 't', ' ']).ok_or_else(unreadable)?;
    let zone = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (time, zone) = time.split_at(zone);
    let zone = match zone.len() {
        0 => "Z".to_owned(),
        // +00
        3 => format!("{zone}:00"),
        // +0000
        5 => format!("{}:{}", &zone[..3], &zone[3..]),
        _ => zone.to_owned(),
    };
    let moment: Moment = format!("{date}T{time}{zone}").parse().map_err(|_| unreadable())?;
    if moment.micros() < YEAR_ONE_MICROS {
        return Err(unreadable());
    }
    Ok(moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(given: &[(usize, &str)]) -> Fields {
        let mut fields = vec![None; super::super::columns::VOTE.len()];
        for (at, text) in given {
            fields[*at] = Some((*text).to_owned());
        }
        fields
    }

    const IMPORT: ImportId = ImportId(3);

    fn refusal(given: &[(usize, &str)]) -> String {
        row(&fields(given), 0.0, false, IMPORT).expect_err("it is refused")
    }

    #[test]
    fn times_are_read_as_people_and_databases_write_them() {
        let noon = Ok(Moment::from_micros(1_893_456_000_500_000));
        for text in [
            "2030-01-01T00:00:00.5Z",
            "2030-01-01 00:00:00.5",
            "2030-01-01 00:00:00.5+00",
            "2030-01-01 05:30:00.5+0530",
            "2029-12-31T23:00:00.500-01:00",
            "1893456000.5",
        ] {
            assert_eq!(moment(text), noon, "{text}");
        }
        for text in [
            "",
            "yesterday",
            "2030-01-01",
            "1893456000500",
            "-1",
            "NaN",
            "2030-13-01T00:00:00Z",
        ] {
            let said = moment(text).expect_err("it is refused");
            assert!(said.contains("it takes one like"), "{text}: {said}");
        }
    }

    #[test]
    fn a_row_that_cannot_be_a_vote_says_what_would_be_right() {
        for (given, words) in [
            (&[(5, "1")][..], "it names no item"),
            (&[(1, "0")], "no id: a positive number"),
            (&[(2, "a\u{7}")], "the item's key"),
            (&[(1, "1"), (5, "2")], "it takes 1 or -1"),
            (&[(1, "1"), (6, "good")], "it takes a number"),
            (&[(1, "1"), (6, "0")], "neither an up-vote nor a down-vote"),
            (&[(1, "1"), (8, "-1")], "it takes 0, 1, 2"),
            (&[(1, "1"), (8, "99999")], "it takes 0, 1, 2"),
            (&[(1, "1"), (9, "0")], "it takes 1, 2, 3"),
            (&[(1, "1"), (4, "\n")], "voter_id has a control character"),
            (&[(1, "1"), (10, "7")], "voided_vote_id takes the id"),
        ] {
            let said = refusal(given);
            assert!(said.contains(words), "{given:?}: {said}");
        }
        let voided = fields(&[(0, "7"), (1, "1"), (10, "7")]);
        let said = row(&voided, 0.0, true, IMPORT).expect_err("it is refused");
        assert!(said.contains("earlier file"), "{said}");
        let read = row(&voided, 0.0, false, IMPORT).expect("a vote");
        assert_eq!(
            read.voter_id.expect("a voter").as_str(),
            "import 3, voided vote 7"
        );
        let rated = row(&fields(&[(1, "1"), (6, "-3.5")]), -4.0, false, IMPORT).expect("a vote");
        assert_eq!(rated.value, 1);
    }
}
