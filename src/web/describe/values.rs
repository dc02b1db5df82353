//! The schemas of numbers and texts on the wire. Their limits are the ones that the parsers have.
//!
//! JSON Schema counts characters, but Tally limits keys and voters in bytes. A schema has the same number,
//! and so allows a little more than the server.

use serde_json::{Value as Json, json};
use utoipa::openapi::schema::{KnownFormat, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::domain;
use crate::domain::{ItemKey, ItemName};
use crate::web::limits::{ACCENT_LENGTH_CHARACTERS, LANGUAGE_LIMIT_CHARACTERS};
use crate::web::problem::Kind;
use crate::web::request::IDEMPOTENCY_KEY_LIMIT_BYTES;

/// No control characters.
const PRINTABLE: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";
/// No control characters, and not only blanks and characters that nobody can see: those of
/// `src/domain/text.rs`, as far as a pattern can name them with four digits.
const VISIBLE: &str = concat!(
    r"^[^\u0000-\u001f\u007f-\u009f]*",
    r"[^\s\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f",
    r"\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]",
    r"[^\u0000-\u001f\u007f-\u009f]*$",
);
/// Not only blanks and characters that nobody can see. It may have line breaks.
const VISIBLE_LINES: &str = concat!(
    r"^[^\u0000]*",
    r"[^\s\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f",
    r"\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]",
    r"[^\u0000]*$",
);
/// `key:` and a key.
const KEY_REFERENCE: &str = r"^key:[^\u0000-\u001f\u007f-\u009f]+$";
/// The number of characters of `key:`.
const KEY_PREFIX_CHARACTERS: usize = 4;

fn integer(least: i64, greatest: i64) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(least))
        .maximum(Some(greatest))
}

fn text(limit: usize, pattern: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(limit))
        .pattern(Some(pattern))
}

fn one_of<const N: usize>(kind: Type, values: [Json; N]) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(SchemaType::Type(kind))
        .enum_values(Some(values))
}

/// A reference to an item or a poll: an id, or `key:` and a key.
fn reference(what: &str) -> OneOfBuilder {
    let key = text(KEY_PREFIX_CHARACTERS + ItemKey::LIMIT_BYTES, KEY_REFERENCE);
    OneOfBuilder::new()
        .item(integer(1, i64::MAX))
        .item(key)
        .description(Some(format!(
            "{what}: its id, or `key:` followed by your own key. In a path, `key:` alone takes the key from the \
             query, as `?key=`."
        )))
}

/// One line for each value: its name in the description, and its schema.
macro_rules! values {
    ($($(#[$doc:meta])* $name:ident = $schema:expr;)+) => {
        $(
            $(#[$doc])*
            pub(in crate::web) struct $name;

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    $schema.into()
                }
            }

            impl ToSchema for $name {}
        )+
    };
}

values! {
    /// An id of an item, a poll, a vote or an API key.
    Id = integer(1, i64::MAX).description(Some("A positive number, chosen by Tally."));
    /// A reference to an item in a path or a body.
    ItemReference = reference("An item");
    /// A reference to a poll in a path.
    PollReference = reference("A poll");
    /// A count of an item.
    NetCount = integer(i64::MIN, i64::MAX).description(Some("Up-votes less down-votes."));
    /// Up-votes or down-votes of an item.
    UpOrDownCount = integer(i64::MIN, i64::MAX).description(Some(
        "The number of votes. It is below 0 for a moment if a retraction is counted before the vote that it takes back."));
    /// A number of votes or voters.
    Total = integer(0, i64::MAX).description(Some("The number of votes or voters."));
    /// What a vote is.
    VoteValue = one_of(Type::Integer, [json!(1), json!(-1)]).description(Some("1, an up-vote, or -1, a down-vote."));
    /// What a voter holds.
    HeldValue = integer(-1, 1).description(Some("1, an up-vote; -1, a down-vote; 0, none."));
    /// A name of an item, or the title of a poll.
    Name = text(ItemName::LIMIT_CHARACTERS, VISIBLE)
        .description(Some("1 to 200 characters, at least one of them visible, no control characters."));
    /// The frontend's own key of an item or a poll.
    Key = text(ItemKey::LIMIT_BYTES, PRINTABLE)
        .description(Some("1 to 200 bytes of UTF-8 without control characters. Unique, and never changed."));
    /// Who votes.
    VoterId = text(domain::VoterId::LIMIT_BYTES, PRINTABLE)
        .description(Some("1 to 128 bytes of UTF-8 without control characters."));
    /// A time.
    Time = ObjectBuilder::new()
        .schema_type(Type::String)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .description(Some("A time (RFC 3339), to the microsecond; answers have it in UTC."))
        .examples([json!("2030-01-31T18:00:00Z")]);
    /// The header Idempotency-Key.
    IdempotencyKey = text(IDEMPOTENCY_KEY_LIMIT_BYTES, r"^[!-~]+$")
        .description(Some("1 to 255 visible ASCII characters."));
    /// The name of an API key.
    ApiKeyName = text(domain::API_KEY_NAME_LIMIT_CHARACTERS, VISIBLE)
        .description(Some("1 to 100 characters, at least one of them visible, no control characters."));
    /// Why votes are voided.
    Reason = text(domain::REASON_LIMIT_CHARACTERS, VISIBLE_LINES)
        .description(Some("1 to 500 characters, at least one of them visible."));
    /// A kind of administrative act.
    ActKind = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(domain::ActKind::ALL.iter().map(|kind| kind.name())))
        .description(Some("What was done."));
    /// The order of a top list.
    TopBy = one_of(Type::String, domain::TopBy::ALL.map(|by| json!(by.name())))
        .description(Some("The order of the items, with the greatest first."));
    /// Over which time a top list is.
    TopOver = one_of(Type::String, domain::TopOver::ALL.map(|over| json!(over.name())))
        .description(Some("The time of the list."));
    /// The time of a history.
    HistoryOver = one_of(Type::String, domain::HistoryOver::ALL.map(|over| json!(over.name())))
        .description(Some("The time of the history."));
    /// The language of a frame.
    FrameLanguage = text(LANGUAGE_LIMIT_CHARACTERS, "^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$")
        .description(Some("A language tag (RFC 5646)."));
    /// The colour of a frame.
    FrameAccent = text(ACCENT_LENGTH_CHARACTERS, "^[0-9A-Fa-f]{6}$")
        .description(Some("Six hexadecimal digits, without `#`."));
    /// The colour scheme of a frame.
    FrameScheme = one_of(Type::String, [json!("light"), json!("dark")]).description(Some("A colour scheme."));
    /// The format of an answer as oEmbed names it.
    OEmbedFormat = one_of(Type::String, [json!("json")]).description(Some("The only format."));
    /// The last part of a problem's `type`.
    ProblemSlug = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(Kind::ALL.iter().map(|kind| kind.slug())));
}
