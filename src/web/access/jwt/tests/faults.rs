//! What is said of tokens that are not valid.

use super::*;

/// What is said of a token that is not valid.
fn said(tokens: &Tokens, token: &str) -> String {
    match tokens.voter(token) {
        Err(TokenError::NotValid(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_wrong_with_a_token_is_said_to_whoever_makes_tokens() {
    let tokens = by_hs256();
    let without = |name: &str| {
        let mut claims = claims();
        claims.as_object_mut().expect("an object").remove(name);
        claims
    };
    let long = "x".repeat(500);
    for (claims, words) in [
        (
            with(claims(), "aud", json!("shop")),
            r#"its aud is "shop"; this server takes "votes""#,
        ),
        (
            with(claims(), "aud", json!(["shop", "blog"])),
            r#"its aud is ["shop","blog"]; this server takes "votes""#,
        ),
        (without("aud"), r#"it has no aud; this server takes "votes""#),
        (
            with(claims(), "iss", json!("https://evil.example")),
            r#"its iss is "https://evil.example"; this server takes "https://id.example""#,
        ),
        (
            without("iss"),
            r#"it has no iss; this server takes "https://id.example""#,
        ),
        (without("sub"), "it has no sub"),
        (with(claims(), "sub", json!(7)), "its sub is 7; it takes text"),
        (with(claims(), "sub", json!("")), "its sub is no voter's id"),
        (without("exp"), "it has no exp"),
        (
            with(claims(), "exp", json!("tomorrow")),
            r#"its exp is "tomorrow"; it takes seconds"#,
        ),
        (
            with(claims(), "nbf", json!(now() + 120)),
            "it is valid only from its nbf on",
        ),
        (
            with(claims(), "nbf", json!("soon")),
            r#"its nbf is "soon"; it takes seconds"#,
        ),
        (with(claims(), "aud", json!(long)), "xxx…; this server takes"),
    ] {
        let why = said(&tokens, &hs256(&claims));
        assert!(why.contains(words) && why.len() < 400, "{words}: {why}");
    }
    let header = |header: Value| by_secret(&header, &claims(), SECRET.as_bytes());
    for (token, words) in [
        (
            header(json!({ "alg": "RS256" })),
            "its alg is RS256; this server has keys for HS256",
        ),
        (
            header(json!({ "alg": "none" })),
            r#"its alg is "none"; it takes HS256, RS256 or ES256"#,
        ),
        (
            header(json!({ "alg": "HS256", "typ": "logout+jwt" })),
            r#"its typ is "logout+jwt""#,
        ),
        (
            header(json!({ "alg": "HS256", "crit": ["b64"] })),
            "its header has crit",
        ),
        (
            by_secret(
                &json!({ "alg": "HS256" }),
                &claims(),
                b"another secret of thirty-two bytes",
            ),
            "its signature is by none of this server's keys",
        ),
        ("a.b".to_owned(), "it is no JWT"),
        ("a".repeat(TOKEN_LIMIT_BYTES + 1), "it takes at most 8192"),
    ] {
        let why = said(&tokens, &token);
        assert!(why.contains(words), "{words}: {why}");
    }
    let key = P256::new();
    let file = file(&[key.jwk("one")]);
    let tokens = Tokens::open(options(None, Some(&file))).expect("tokens");
    let of_unknown = key.token(&json!({ "alg": "ES256", "kid": "two" }), &claims());
    let why = said(&tokens, &of_unknown);
    assert!(
        why.contains(r#"its kid is "two", which none of this server's keys has"#),
        "{why}"
    );
}

#[test]
fn what_the_server_takes_is_said_only_of_a_token_that_one_of_its_keys_has_signed() {
    let tokens = by_hs256();
    let wrong = with(
        with(claims(), "aud", json!("shop")),
        "iss",
        json!("https://evil.example"),
    );
    let forged = by_secret(
        &json!({ "alg": "HS256" }),
        &wrong,
        b"another secret of thirty-two bytes",
    );
    let whole = hs256(&wrong);
    let (signed, _) = whole.rsplit_once('.').expect("a token");
    for token in [
        forged,
        format!("{signed}."),
        format!("{signed}.AAAA"),
        format!("{signed}.!"),
    ] {
        let why = said(&tokens, &token);
        assert!(!why.contains("votes") && !why.contains("id.example"), "{why}");
    }
}
