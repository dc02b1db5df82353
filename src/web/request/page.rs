//! Pages of lists: how long they are, and where the next one is.

use std::fmt::Display;

use crate::web::problem::Problem;

/// How many things a page has: `default`, unless the parameter `limit` says otherwise.
///
/// # Errors
/// When it is not from 1 to `most`.
pub(in crate::web) fn limit(asked: Option<i64>, default: i64, most: i64) -> Result<i64, Problem> {
    let limit = asked.unwrap_or(default);
    if (1..=most).contains(&limit) {
        return Ok(limit);
    }
    let detail = format!("limit is {limit}; it takes 1 to {most}.");
    Err(Problem::invalid("limit", detail))
}

/// The id in the parameter `before`.
///
/// # Errors
/// When it is none.
pub(in crate::web) fn before(asked: Option<i64>) -> Result<Option<i64>, Problem> {
    match asked {
        Some(before) if before < 1 => {
            let detail = format!("before is {before}; it takes 1 or more.");
            Err(Problem::invalid("before", detail))
        }
        before => Ok(before),
    }
}

/// The path of the page where the parameter `name` is `at`, with the other parameters of this query.
pub(in crate::web) fn next(path: &str, query: &str, name: &str, at: impl Display) -> String {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let is_other = |part: &&str| part.split_once('=').map_or(*part, |(of, _)| of) != name;
    let others: String = parts.filter(is_other).map(|part| format!("&{part}")).collect();
    format!("{path}?{name}={at}{others}")
}
