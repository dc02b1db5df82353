//! Entity tags: whether a client has an answer already.

use std::hash::{DefaultHasher, Hash, Hasher};

use actix_web::HttpRequest;
use actix_web::http::header::{self, EntityTag, IfNoneMatch};

/// Returns whether the client has the answer with this tag.
pub fn has(request: &HttpRequest, tag: &EntityTag) -> bool {
    asked(request).is_some_and(|tags| matches(&tags, tag))
}

/// Returns whether one of these tags is this tag.
pub fn matches(tags: &IfNoneMatch, tag: &EntityTag) -> bool {
    match tags {
        IfNoneMatch::Any => true,
        IfNoneMatch::Items(tags) => tags.iter().any(|one| one.weak_eq(tag)),
    }
}

/// Returns the tag of a body, which is the same on every server of this version. The tag is weak, because an
/// answer of 304 may hide how far counts are saved.
pub fn tag_of(body: &[u8]) -> EntityTag {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    EntityTag::new_weak(format!("{:016x}", hasher.finish()))
}

/// Returns the tags that the client has. `None`: no readable tag.
pub fn asked(request: &HttpRequest) -> Option<IfNoneMatch> {
    request.headers().get(header::IF_NONE_MATCH)?;
    <IfNoneMatch as header::Header>::parse(request).ok()
}
