//! Fields that several bodies have: names, keys, times.

use crate::domain::{ItemKey, ItemName, Moment};
use crate::web::problem::Problem;

/// Reads the name in this field.
pub(in crate::web) fn name(field: &'static str, text: String) -> Result<ItemName, Problem> {
    ItemName::parse(text).map_err(|error| Problem::invalid(field, format!("{field} {error}.")))
}

/// Reads the key, if there is one.
pub(in crate::web) fn key(text: Option<String>) -> Result<Option<ItemKey>, Problem> {
    text.map(ItemKey::parse)
        .transpose()
        .map_err(|error| Problem::invalid("key", format!("{error}.")))
}

/// Reads the time in this field, if there is one.
pub(in crate::web) fn moment(field: &'static str, text: Option<String>) -> Result<Option<Moment>, Problem> {
    let read = |text: String| {
        let moment = text.parse::<Moment>();
        moment.map_err(|error| Problem::invalid(field, format!("{field}: {error}.")))
    };
    text.map(read).transpose()
}

/// Reads the opening and closing times.
pub(in crate::web) fn open_and_close(
    opens_at: Option<String>,
    closes_at: Option<String>,
) -> Result<(Option<Moment>, Option<Moment>), Problem> {
    let opens_at = moment("opens_at", opens_at)?;
    let closes_at = moment("closes_at", closes_at)?;
    if let (Some(opens), Some(closes)) = (opens_at, closes_at)
        && closes <= opens
    {
        let detail = format!("closes_at is {closes}; it takes a time after opens_at, {opens}.");
        return Err(Problem::invalid("closes_at", detail));
    }
    Ok((opens_at, closes_at))
}
