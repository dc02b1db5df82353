//! The pages, embedded in the binary. Each has a folder with its script and its style.
//!
//! - `voting`: the pages to vote on.
//! - `frames`: the pages of one item or one poll, for frames on other pages.
//! - `oembed`: the frame that belongs to a page's address.
//! - `embed`: the page that makes snippets, and the elements of the snippets.
//! - `operator`: the operator's page.
//! - `docs`: the page that shows the description.
//! - `problems`: what each problem type means.
//! - `assets`: scripts, style sheets and pictures, which browsers keep for ever.
//! - `found`: what is read for a page of one item or one poll.
//! - `address`: the address at which a browser sees the server.
//! - `html`: text in HTML.

mod address;
pub(in crate::web) mod assets;
pub(in crate::web) mod docs;
pub(in crate::web) mod embed;
mod found;
pub(in crate::web) mod frames;
mod html;
pub(in crate::web) mod oembed;
pub(in crate::web) mod operator;
pub(in crate::web) mod problems;
pub(in crate::web) mod voting;

/// Makes everything that does not change, before the first request.
pub(in crate::web) fn prepare() {
    assets::prepare();
    embed::prepare();
    operator::prepare();
}
