//! The pages, embedded in the binary. Each has a folder with its script and its style.
//!
//! - `voting`: the pages to vote on.
//! - `embed`: the page that makes snippets, and the elements of the snippets.
//! - `operator`: the operator's page.
//! - `docs`: the page that shows the description.
//! - `problems`: what each problem type means.
//! - `assets`: scripts, style sheets and pictures, which browsers keep for ever.
//! - `html`: text in HTML.

pub(in crate::web) mod assets;
pub(in crate::web) mod docs;
pub(in crate::web) mod embed;
mod html;
pub(in crate::web) mod operator;
pub(in crate::web) mod problems;
pub(in crate::web) mod voting;

/// Makes everything that does not change, before the first request.
pub(in crate::web) fn prepare() {
    assets::prepare();
    embed::prepare();
    operator::prepare();
}
