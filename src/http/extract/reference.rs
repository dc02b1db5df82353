//! Reads what stands for an item or a poll: its id, or `key:` and its key.

use std::fmt;
use std::str::FromStr;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};
use futures_util::future;
use serde::Deserialize;

use super::path::decoded;
use crate::domain::{ItemId, ItemKey, PollId};
use crate::http::problem::Problem;

/// What a key begins with, wherever an id may stand.
const KEY: &str = "key:";

/// An id, or the frontend's own key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference<Id> {
    Id(Id),
    Key(ItemKey),
}

impl<Id: FromStr> Reference<Id> {
    /// Reads one. `field` is what a client calls it.
    ///
    /// # Errors
    /// When it is neither an id nor `key:` with a key.
    pub fn parse(field: &'static str, text: &str) -> Result<Self, Problem> {
        if let Some(key) = text.strip_prefix(KEY) {
            return match ItemKey::parse(key.to_owned()) {
                Ok(key) => Ok(Self::Key(key)),
                Err(error) => Err(Problem::invalid(field, format!("{error}."))),
            };
        }
        text.parse().map(Self::Id).map_err(|_| {
            let detail =
                format!("{field}: it takes a whole number from 1 to 9223372036854775807, or key: and a key.");
            Problem::malformed(field, detail)
        })
    }
}

impl<Id: fmt::Display> fmt::Display for Reference<Id> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(out),
            Self::Key(key) => write!(out, "{KEY}{}", key.as_str()),
        }
    }
}

/// The `{id}` of a path: a positive 64-bit number, or `key:` and a percent-encoded key.
pub struct PathReference<Id>(pub Reference<Id>);

pub type PathItemReference = PathReference<ItemId>;
pub type PathPollReference = PathReference<PollId>;

/// Where it stands in a path: `/v1/items/{id}`.
const PART: usize = 3;

impl<Id: FromStr> FromRequest for PathReference<Id> {
    type Error = Problem;
    type Future = future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        // As it was sent: actix has decoded a part of it.
        let part = request.uri().path().split('/').nth(PART).unwrap_or_default();
        future::ready(path_reference(part).map(Self))
    }
}

/// Reads a part of a path. An id is taken as it stands.
///
/// # Errors
/// As [`Reference::parse`].
pub(in crate::http) fn path_reference<Id: FromStr>(part: &str) -> Result<Reference<Id>, Problem> {
    if part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Reference::parse("id", part);
    }
    Reference::parse("id", &decoded("id", part)?)
}

/// An item in a body: a whole number, or `"key:…"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum BodyItem {
    Id(i64),
    Text(String),
}

impl BodyItem {
    /// The item, if it can be one.
    ///
    /// # Errors
    /// As [`Reference::parse`].
    pub fn into_reference(self, field: &'static str) -> Result<Reference<ItemId>, Problem> {
        match self {
            Self::Id(id) => ItemId::new(id).map(Reference::Id).ok_or_else(|| {
                let detail = format!("{field} is {id}; it takes 1 or more.");
                Problem::invalid(field, detail)
            }),
            Self::Text(text) => Reference::parse(field, &text),
        }
    }
}
