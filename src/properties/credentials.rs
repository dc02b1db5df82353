//! Properties of what says who sends a request, and from where.

use std::net::IpAddr;

use crate::web::parsing;

/// The header Cookie, and a value that the server's own key signed.
pub fn voter_cookie(bytes: &[u8]) {
    let voter = parsing::voter_cookie(bytes);
    assert!(voter.is_none(), "nobody else has the key: {voter:?}");
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Some(voter) = parsing::signed_cookie(text) {
        assert!((1..=128).contains(&voter.len()), "{voter:?}");
        assert!(!voter.chars().any(char::is_control), "{voter:?}");
    }
}

/// A token, and one that the issuer signed. The second has this header and these claims, with a
/// line feed between them.
pub fn voter_token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    assert_eq!(parsing::voter_token(text), None, "nobody else has the secret");
    let Some((header, claims)) = text.split_once('\n') else {
        return;
    };
    if let Some(voter) = parsing::signed_token(header, claims) {
        assert!((1..=128).contains(&voter.len()), "{voter:?}");
        assert!(header.contains("HS256") && !header.contains("crit"), "{header}");
        assert!(claims.contains("exp") && claims.contains("aud") && claims.contains("iss"));
    }
}

/// The headers Forwarded and X-Forwarded-For from a client, before a proxy adds its own.
pub fn forwarded(bytes: &[u8]) {
    for (added, client) in [
        ("for=198.51.100.1", "198.51.100.1"),
        ("for=\"[2001:db8::1]:4711\";proto=https", "2001:db8::1"),
    ] {
        let client: IpAddr = client.parse().expect("an address");
        let line = [bytes, b", ", added.as_bytes()].concat();
        let found = parsing::client_behind_proxy("forwarded", &line);
        assert!(found.is_none_or(|found| found == client), "{found:?}");
        let line = [bytes, b",", client.to_string().as_bytes()].concat();
        let found = parsing::client_behind_proxy("x-forwarded-for", &line);
        assert!(found.is_none_or(|found| found == client), "{found:?}");
    }
    // Without a proxy, the header may say anything.
    let _ = parsing::client_behind_proxy("forwarded", bytes);
    let _ = parsing::client_behind_proxy("x-forwarded-for", bytes);
}
