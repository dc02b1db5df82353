//! Pages of lists: their length, and the address of the next page.

use std::fmt::Display;

use crate::web::problem::Problem;

/// Returns the length of a page: the parameter `limit`, or `default` without it.
///
/// Fails when the parameter is not from 1 to `most`.
pub(in crate::web) fn limit(asked: Option<i64>, default: i64, most: i64) -> Result<i64, Problem> {
    let limit = asked.unwrap_or(default);
    if (1..=most).contains(&limit) {
        return Ok(limit);
    }
    let detail = format!("limit is {limit}; it takes 1 to {most}.");
    Err(Problem::invalid("limit", detail))
}

/// Reads the id in the parameter `before`. Fails when it is not an id.
pub(in crate::web) fn before(asked: Option<i64>) -> Result<Option<i64>, Problem> {
    match asked {
        Some(before) if before < 1 => {
            let detail = format!("before is {before}; it takes 1 or more.");
            Err(Problem::invalid("before", detail))
        }
        before => Ok(before),
    }
}

/// Reads the id in the field `after`, where a dry run continues. Fails when it is no id, or this is no dry run.
pub(in crate::web) fn dry_run_after(asked: Option<i64>, is_dry_run: bool) -> Result<i64, Problem> {
    match asked {
        Some(_) if !is_dry_run => Err(Problem::invalid("after", "after: only a dry run takes it.")),
        Some(after) if after < 0 => {
            let detail = format!("after is {after}; it takes 0 or more.");
            Err(Problem::invalid("after", detail))
        }
        after => Ok(after.unwrap_or(0)),
    }
}

/// Returns the path of the page where the parameter `name` is `at`, with the query's other parameters.
pub(in crate::web) fn next(path: &str, query: &str, name: &str, at: impl Display) -> String {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let is_other = |part: &&str| part.split_once('=').map_or(*part, |(of, _)| of) != name;
    let others: String = parts.filter(is_other).map(|part| format!("&{part}")).collect();
    format!("{path}?{name}={at}{others}")
}
