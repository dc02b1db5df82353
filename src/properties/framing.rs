//! Where requests end, as actix-http reads them.

use std::cell::OnceCell;

use actix_codec::Decoder as _;
use actix_http::ServiceConfig;
use actix_http::h1::{Codec, Message, MessageType};
use actix_web::rt::Runtime;
use actix_web::web::BytesMut;

use crate::web::parsing;

thread_local! {
    /// A configuration needs a runtime, which keeps the date.
    static CONFIG: OnceCell<(ServiceConfig, Runtime)> = const { OnceCell::new() };
}

/// The requests of a connection. It makes no difference where they are cut. Each ends where actix-http reads
/// its end, and actix-http refuses a request without a certain end.
pub fn request_framing(bytes: &[u8]) {
    let framed = parsing::framed(bytes, bytes.len().max(1));
    for size in [1, 2, 7] {
        assert_eq!(parsing::framed(bytes, size), framed, "in pieces of {size}");
    }
    let config = CONFIG.with(|config| {
        let (config, _) = config.get_or_init(|| {
            let runtime = Runtime::new().expect("a runtime");
            (runtime.block_on(async { ServiceConfig::default() }), runtime)
        });
        config.clone()
    });
    let mut codec = Codec::new(config);
    let mut rest = BytesMut::from(&*framed.bytes);
    let mut ends = Vec::new();
    let is_refused = loop {
        let is_end = match codec.decode(&mut rest) {
            Ok(Some(Message::Item(_))) => match codec.message_type() {
                MessageType::None => true,
                MessageType::Payload => false,
                // Everything behind CONNECT is its body.
                MessageType::Stream => return,
            },
            Ok(Some(Message::Chunk(chunk))) => chunk.is_none(),
            Ok(None) => break false,
            Err(_) => break true,
        };
        if is_end {
            ends.push(framed.bytes.len() - rest.len());
        }
    };
    if is_refused {
        assert!(framed.ends.starts_with(&ends), "{ends:?} {framed:?}");
    } else {
        assert_eq!(framed.ends, ends, "{framed:?}");
    }
    if framed.is_unclear {
        assert!(is_refused, "{ends:?} {framed:?}");
    }
}
