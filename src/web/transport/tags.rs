//! Entity tags: whether a client has an answer already.

use std::hash::{DefaultHasher, Hash, Hasher};

use actix_web::HttpRequest;
use actix_web::http::header::{self, EntityTag, IfNoneMatch};

/// Whether the client says that it has the answer with this tag.
pub fn has(request: &HttpRequest, tag: &EntityTag) -> bool {
    asked(request).is_some_and(|tags| matches(&tags, tag))
}

/// Whether one of these tags is this one.
pub fn matches(tags: &IfNoneMatch, tag: &EntityTag) -> bool {
    match tags {
        IfNoneMatch::Any => true,
        IfNoneMatch::Items(tags) => tags.iter().any(|one| one.weak_eq(tag)),
    }
}

/// The tag of a body: the same on every server of this version. A weak one, since an answer of 304 may
/// leave out how far counts are saved.
pub fn tag_of(body: &[u8]) -> EntityTag {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    EntityTag::new_weak(format!("{:016x}", hasher.finish()))
}

/// The tags that the client has; `None`: none that can be read.
pub fn asked(request: &HttpRequest) -> Option<IfNoneMatch> {
    request.headers().get(header::IF_NONE_MATCH)?;
    <IfNoneMatch as header::Header>::parse(request).ok()
}
