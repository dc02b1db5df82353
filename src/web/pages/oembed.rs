//! `/oembed`: for the address of an item's or a poll's page, the frame that shows it (oembed.com). A CMS that takes
//! nothing but an address asks here.

use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use reqwest::Url;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::domain::{ItemId, PollId, Reference};
use crate::web::access::is_host_of;
use crate::web::api::conditional::TagHeader;
use crate::web::api::polls;
use crate::web::api::polls::PollBody;
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::pages::found::READ_LIMIT;
use crate::web::pages::frames::look::Look;
use crate::web::pages::html::Escaped;
use crate::web::pages::{address, found};
use crate::web::problem::{Kind, Problem};
use crate::web::request::reference;
use crate::web::transport::kept::{Fresh, Head};
use crate::web::transport::{POLICY_OF_DATA, gzip, tags};

/// The width of a frame, unless the client wants less.
const WIDTH_PIXELS: u32 = 600;
/// About the height of an item.
const ITEM_HEIGHT_PIXELS: u32 = 110;
/// About the height of a poll without its choices: its title, its notes, and a message.
const POLL_HEIGHT_PIXELS: u32 = 130;
/// About the height of a field for a ballot.
const BALLOT_HEIGHT_PIXELS: u32 = 85;
/// About the height of a choice.
const CHOICE_HEIGHT_PIXELS: u32 = 53;
/// The greatest height. A longer poll scrolls in its frame.
const HEIGHT_LIMIT_PIXELS: u32 = 800;
/// How long a client may keep the answer: a title may be edited.
const CACHE_AGE_SECONDS: u32 = 86_400;
/// The last part of a frame's address.
const FRAME: &str = "frame";
/// In place of an id: the key is in the query.
const KEY: &str = "key:";

/// A frame with a vote, as oEmbed 1.0 has it.
#[derive(Serialize, ToSchema)]
#[schema(as = OEmbed)]
struct OEmbedBody<'a> {
    /// HTML that shows the vote.
    #[schema(value_type = OEmbedType)]
    r#type: &'static str,
    /// The version of oEmbed.
    #[schema(value_type = OEmbedVersion)]
    version: &'static str,
    /// The name of the item, or the title of the poll.
    title: &'a str,
    provider_name: &'static str,
    /// The address of the server.
    provider_url: &'a str,
    /// For how many seconds the answer may be kept.
    cache_age: u32,
    /// The width of the frame in pixels.
    #[schema(minimum = 1)]
    width: u32,
    /// About the height that the vote needs, in pixels.
    #[schema(minimum = 1)]
    height: u32,
    /// The frame.
    html: String,
}

/// The type: the name in its schema.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "it is here for its schema")]
enum OEmbedType {
    Rich,
}

/// The version: the name in its schema.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it is here for its schema")]
enum OEmbedVersion {
    #[schema(rename = "1.0")]
    One,
}

/// What a client asks.
struct Asked {
    url: String,
    max_width: u32,
    max_height: u32,
}

impl Asked {
    /// Reads a query. Clients send parameters of their own too, which are ignored.
    fn of(query: &str) -> Result<Self, Problem> {
        let pairs = web::Query::<Vec<(String, String)>>::from_query(query);
        let pairs = pairs
            .map_err(|_| Problem::malformed("query", "query: it takes name=value pairs, percent-encoded."))?
            .into_inner();
        let one = |name: &'static str| {
            let mut values = pairs.iter().filter(|(of, _)| of == name).map(|(_, value)| value);
            match (values.next(), values.next()) {
                (value, None) => Ok(value),
                (_, Some(_)) => {
                    let detail = format!("{name}: it is given more than once; it takes one value.");
                    Err(Problem::malformed(name, detail))
                }
            }
        };
        let pixels = |name: &'static str| match one(name)? {
            None => Ok(u32::MAX),
            Some(text) => text
                .parse::<u32>()
                .ok()
                .filter(|pixels| *pixels > 0)
                .ok_or_else(|| {
                    let detail = format!(
                        "{name}: it takes a whole number of pixels from 1 to {}.",
                        u32::MAX
                    );
                    Problem::malformed(name, detail)
                }),
        };
        if let Some(format) = one("format")?
            && format != "json"
        {
            let detail = "format is not offered; it takes json, as without it.";
            return Err(Problem::new(Kind::FormatNotOffered, detail).on_field("format"));
        }
        let missing =
            "url: it is missing; it takes the address of a page, like https://votes.example.org/polls/1.";
        Ok(Self {
            url: one("url")?
                .cloned()
                .ok_or_else(|| Problem::malformed("url", missing))?,
            max_width: pixels("maxwidth")?,
            max_height: pixels("maxheight")?,
        })
    }

    /// Reads the address. Fails when it is not of a page at this host that has a frame.
    fn address(&self, host: &[u8]) -> Result<Address, Problem> {
        Address::of(&self.url, host).ok_or_else(|| {
            let detail =
                "url is no page of an item or a poll at this host; it takes one like /polls/1, with its host.";
            Problem::new(Kind::NotFound, detail).on_field("url")
        })
    }
}

/// An item or a poll.
#[derive(Debug, PartialEq, Eq)]
enum What {
    Item(Reference<ItemId>),
    Poll(Reference<PollId>),
}

/// The address of a page of one item or one poll.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    what: What,
    /// Where the server is: its origin, and the path that a proxy in front of it takes off.
    server: String,
    /// The query, in which the frame's look may stand.
    query: String,
}

impl Address {
    /// Reads an address. `None`: it is not of a page at this host that has a frame.
    fn of(text: &str, host: &[u8]) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let origin = url.origin().ascii_serialization();
        let is_here = matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && is_host_of(host, origin.as_bytes());
        let mut parts: Vec<&str> = url.path_segments().filter(|_| is_here)?.collect();
        if parts.last() == Some(&"") || parts.last() == Some(&FRAME) {
            parts.pop();
        }
        let (named, kind) = (parts.pop()?, parts.pop()?);
        let named = percent_decode_str(named).decode_utf8().ok()?;
        let named = match &*named {
            KEY => {
                let (_, key) = url.query_pairs().find(|(name, _)| name == "key")?;
                format!("{KEY}{key}")
            }
            named => named.to_owned(),
        };
        let what = match kind {
            "items" => What::Item(reference::parse("url", &named).ok()?),
            "polls" => What::Poll(reference::parse("url", &named).ok()?),
            _ => return None,
        };
        let path: String = parts.iter().map(|part| format!("/{part}")).collect();
        Some(Self {
            what,
            server: format!("{origin}{path}"),
            query: url.query().unwrap_or_default().to_owned(),
        })
    }
}

/// Returns the address of a frame. `path` is the path of its item or poll.
fn source(address: &Address, path: &str, look: &Look) -> String {
    format!("{}{path}/{FRAME}{}", address.server, look.query())
}

/// Returns the address of the frame that a query names at this host, as if it were of poll 1.
///
/// # Errors
/// Fails when the query names none.
#[cfg(any(test, fuzzing))]
pub(in crate::web) fn frame_of(query: &str, host: &[u8]) -> Result<String, Problem> {
    let address = Asked::of(query)?.address(host)?;
    let look = Look::within(&address.query)?;
    Ok(source(&address, "/polls/1", &look))
}

/// Returns about the height of a poll in a frame.
fn height(poll: &PollBody) -> u32 {
    let choices = u32::try_from(poll.choices.len()).unwrap_or(u32::MAX);
    let ballot = if poll.by_ballot { BALLOT_HEIGHT_PIXELS } else { 0 };
    choices
        .saturating_mul(CHOICE_HEIGHT_PIXELS)
        .saturating_add(POLL_HEIGHT_PIXELS + ballot)
        .min(HEIGHT_LIMIT_PIXELS)
}

/// Retrieve the frame of a page.
///
/// For a CMS that takes only an address: oEmbed 1.0 (oembed.com), as JSON. `url` is the address of an item's or a
/// poll's page on this server, at the host that is asked. Its `lang`, `accent` and `scheme` are the frame's. Without
/// `TALLY_FRAME_ORIGINS`, each answer is 404.
#[utoipa::path(
    get,
    path = "/oembed",
    operation_id = "showOEmbed",
    tag = "Pages",
    params(
        ("url" = String, Query, description = "The address of a page.", example = json!("http://127.0.0.1:8080/polls/1")),
        ("maxwidth" = Option<u32>, Query, minimum = 1, description = "The greatest width in pixels.", example = json!(480)),
        ("maxheight" = Option<u32>, Query, minimum = 1, description = "The greatest height in pixels.", example = json!(400)),
        ("format" = Option<values::OEmbedFormat>, Query, description = "`json`. No other format is offered.", example = json!("json")),
        TagHeader,
    ),
    responses(
        (status = 200, description = "The frame.", body = OEmbedBody,
            headers(("ETag" = String), ("Cache-Control" = String)),
            example = json!({
                "type": "rich", "version": "1.0", "title": "Lunch?", "provider_name": "Tally",
                "provider_url": "https://votes.example.org", "cache_age": 86_400, "width": 480, "height": 236,
                "html": "<iframe src=\"https://votes.example.org/polls/1/frame\" title=\"Lunch?\" width=\"480\" height=\"236\" style=\"border: 0; max-width: 100%\" loading=\"lazy\"></iframe>"
            })),
        (status = 304, description = "Not modified: the client has this answer.",
            headers(("ETag" = String), ("Cache-Control" = String))),
        OEmbedProblems,
    )
)]
pub async fn show(request: HttpRequest, state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    let host = request.headers().get(header::HOST);
    let host = host.map(HeaderValue::as_bytes).unwrap_or_default();
    let asked = Asked::of(request.query_string())?;
    if state.access.options.frames.is_empty() {
        let detail =
            "No page may frame a vote of this server; TALLY_FRAME_ORIGINS lists the origins that may.";
        return Err(Problem::new(Kind::NotFound, detail));
    }
    let address = asked.address(host)?;
    let look = Look::within(&address.query)?;
    let read = async {
        Ok(match &address.what {
            What::Item(reference) => {
                let read = found::item(&state, reference).await?;
                let path = format!("/items/{}", read.item.id);
                (path, read.item.name.to_string(), ITEM_HEIGHT_PIXELS)
            }
            What::Poll(reference) => {
                let read = polls::body(&found::poll(&state, reference).await?);
                (format!("/polls/{}", read.id), read.title.clone(), height(&read))
            }
        })
    };
    let late = "The database did not answer in time; try again.";
    let read: Result<_, Problem> = timeout(READ_LIMIT, read)
        .await
        .unwrap_or_else(|_| Err(Problem::unavailable(late)));
    let (path, title, height) = read?;
    let (width, height) = (WIDTH_PIXELS.min(asked.max_width), height.min(asked.max_height));
    let source = source(&address, &path, &look);
    let body = OEmbedBody {
        r#type: "rich",
        version: "1.0",
        title: &title,
        provider_name: "Tally",
        provider_url: &address.server,
        cache_age: CACHE_AGE_SECONDS,
        width,
        height,
        html: format!(
            "<iframe src=\"{}\" title=\"{}\" width=\"{width}\" height=\"{height}\" \
             style=\"border: 0; max-width: 100%\" loading=\"lazy\"></iframe>",
            Escaped(&source),
            Escaped(&title)
        ),
    };
    // It has texts and numbers alone, which are always JSON.
    let body = Bytes::from(serde_json::to_vec(&body).map_err(|_| Problem::internal())?);
    let head = Head {
        content_type: "application/json",
        policy: POLICY_OF_DATA,
        tag: tags::tag_of(&body),
    };
    let response = match tags::has(&request, &head.tag) {
        true => HttpResponse::NotModified(),
        false => HttpResponse::Ok(),
    };
    let compressed = || gzip::compress(&body, gzip::Effort::Least);
    Ok(head.finish(&request, response, Fresh::IfAsked, body.clone(), compressed))
}

problems!(OEmbedProblems: ADDRESSES, STORES; NotFound, FormatNotOffered, OtherCell, UnknownItem, UnknownPoll);

/// Returns the line of a page's head by which a CMS finds the page's frame. `path` is the page's own. `None`: no
/// page may frame it, or the request names no host.
pub(super) fn discovery(request: &HttpRequest, state: &AppState, path: &str, title: &str) -> Option<String> {
    if state.access.options.frames.is_empty() {
        return None;
    }
    let origin = address::origin(request, state)?;
    // What is wrong in the query of a page is ignored, as the page does.
    let query = Look::within(request.query_string()).unwrap_or_default().query();
    let page = format!("{origin}{path}{query}");
    Some(format!(
        "<link rel=\"alternate\" type=\"application/json+oembed\" href=\"{}/oembed?url={}\" title=\"{}\">\n",
        Escaped(&origin),
        utf8_percent_encode(&page, NON_ALPHANUMERIC),
        Escaped(title)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &[u8] = b"votes.example.org";

    fn poll(reference: &str) -> What {
        What::Poll(reference.parse().expect("a reference"))
    }

    #[test]
    fn an_address_names_an_item_or_a_poll_and_where_the_server_is() {
        let here = "https://votes.example.org";
        for (path, what, below) in [
            ("/polls/4", poll("4"), ""),
            ("/polls/4/", poll("4"), ""),
            ("/polls/4/frame", poll("4"), ""),
            ("/polls/4?lang=de#votes", poll("4"), ""),
            ("/tally/polls/4", poll("4"), "/tally"),
            ("/a/b/polls/4/frame", poll("4"), "/a/b"),
            ("/polls/key:lunch", poll("key:lunch"), ""),
            ("/polls/key%3Aa%2Fb", poll("key:a/b"), ""),
            ("/polls/key:?key=a%2Fb", poll("key:a/b"), ""),
            (
                "/items/key:frame",
                What::Item("key:frame".parse().expect("a reference")),
                "",
            ),
            ("/x/../items/7", What::Item("7".parse().expect("a reference")), ""),
        ] {
            let found = Address::of(&format!("{here}{path}"), HOST).expect(path);
            assert_eq!(
                (found.what, found.server),
                (what, format!("{here}{below}")),
                "{path}"
            );
        }
        let with_port = Address::of("http://127.0.0.1:8080/polls/4", b"127.0.0.1:8080").expect("an address");
        assert_eq!(with_port.server, "http://127.0.0.1:8080");
        // A proxy may pass on the port that its clients leave out.
        assert!(Address::of("https://votes.example.org/polls/4", b"votes.example.org:443").is_some());
    }

    #[test]
    fn an_address_of_anything_else_is_none() {
        for wrong in [
            "",
            "/polls/4",
            "polls/4",
            "https://votes.example.org",
            "https://votes.example.org/polls",
            "https://votes.example.org/polls/",
            "https://votes.example.org/polls/x",
            "https://votes.example.org/polls/0",
            "https://votes.example.org/polls/key:",
            "https://votes.example.org/frame",
            "https://votes.example.org/polls/4/frame/frame",
            "https://votes.example.org/v1/voidings/4",
            "https://votes.example.org:8443/polls/4",
            "https://evil.example/polls/4",
            "https://votes.example.org@evil.example/polls/4",
            "https://ada:secret@votes.example.org/polls/4",
            "ftp://votes.example.org/polls/4",
            "javascript://votes.example.org/polls/4",
        ] {
            assert_eq!(Address::of(wrong, HOST), None, "{wrong}");
        }
    }

    #[test]
    fn a_client_asks_for_a_page_in_json_and_at_most_so_large() {
        let asked =
            Asked::of("url=https%3A%2F%2Fx%2Fpolls%2F1&maxwidth=300&format=json&dnt=1").expect("it is right");
        assert_eq!(asked.url, "https://x/polls/1");
        assert_eq!((asked.max_width, asked.max_height), (300, u32::MAX));
        for (query, kind) in [
            ("", Kind::Malformed),
            ("maxwidth=300", Kind::Malformed),
            ("url=x&url=y", Kind::Malformed),
            ("url=x&maxwidth=0", Kind::Malformed),
            ("url=x&maxwidth=-1", Kind::Malformed),
            ("url=x&maxheight=4294967296", Kind::Malformed),
            ("url=x&format=xml", Kind::FormatNotOffered),
            ("url=x&format=", Kind::FormatNotOffered),
        ] {
            let problem = Asked::of(query).err().expect(query);
            assert_eq!(problem.kind(), kind, "{query}");
        }
    }
}
