mod faults;

use ::ring::rand::SystemRandom;
use ::ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use ::ring::{hmac, signature};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::web::access::jwt::*;

const SECRET: &str = "a secret of thirty-two bytes or more";

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock after 1970").as_secs()
}

/// Valid claims.
fn claims() -> Value {
    json!({ "sub": "ada", "aud": "votes", "iss": "https://id.example", "exp": now() + 600 })
}

fn with(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

fn signed(header: &Value, claims: &str, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let text = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header.to_string()),
        URL_SAFE_NO_PAD.encode(claims)
    );
    let signature = URL_SAFE_NO_PAD.encode(sign(text.as_bytes()));
    format!("{text}.{signature}")
}

fn by_secret(header: &Value, claims: &Value, secret: &[u8]) -> String {
    signed(header, &claims.to_string(), |text| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        hmac::sign(&key, text).as_ref().to_vec()
    })
}

fn hs256(claims: &Value) -> String {
    by_secret(
        &json!({ "alg": "HS256", "typ": "JWT" }),
        claims,
        SECRET.as_bytes(),
    )
}

struct P256 {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl P256 {
    fn new() -> Self {
        let random = SystemRandom::new();
        let signing: &signature::EcdsaSigningAlgorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(signing, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(signing, document.as_ref(), &random).expect("a key");
        Self { pair, random }
    }

    fn jwk(&self, id: &str) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({
            "kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(&point[1..33]),
            "y": URL_SAFE_NO_PAD.encode(&point[33..]),
        })
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        signed(header, &claims.to_string(), |text| {
            let signature = self.pair.sign(&self.random, text).expect("a signature");
            signature.as_ref().to_vec()
        })
    }
}

fn file(keys: &[Value]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), json!({ "keys": keys }).to_string()).expect("written");
    file
}

fn options(secret: Option<&str>, keys: Option<&tempfile::NamedTempFile>) -> JwtOptions {
    JwtOptions {
        secrets: secret.map(|secret| secret.parse().expect("a secret")),
        keys_file: keys.map(|file| file.path().to_owned()),
        audience: "votes".to_owned(),
        issuer: "https://id.example".to_owned(),
    }
}

fn by_hs256() -> Tokens {
    Tokens::open(options(Some(SECRET), None)).expect("tokens")
}

/// What becomes of a token, without the words.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    Expired,
    NotValid,
}

trait Judge {
    fn judge(&self, token: &str) -> Result<VoterId, Refused>;
}

impl Judge for Tokens {
    fn judge(&self, token: &str) -> Result<VoterId, Refused> {
        self.voter(token).map_err(|error| match error {
            TokenError::Expired => Refused::Expired,
            TokenError::NotValid(why) => {
                assert!(!why.is_empty() && !why.contains(SECRET), "{why}");
                Refused::NotValid
            }
        })
    }
}

fn voter(name: &str) -> Result<VoterId, Refused> {
    Ok(VoterId::parse(name.to_owned()).expect("a voter"))
}

const NOT_VALID: Result<VoterId, Refused> = Err(Refused::NotValid);

#[test]
fn a_token_names_its_voter() {
    let tokens = by_hs256();
    assert_eq!(tokens.judge(&hs256(&claims())), voter("ada"));
    let several = with(claims(), "aud", json!(["other", "votes"]));
    assert_eq!(tokens.judge(&hs256(&several)), voter("ada"));
    let fraction = with(claims(), "exp", json!(now() as f64 + 60.5));
    assert_eq!(tokens.judge(&hs256(&fraction)), voter("ada"));
}

#[test]
fn each_of_several_secrets_is_believed_while_one_replaces_the_other() {
    let new = "another secret of thirty-two bytes";
    let both = Tokens::open(options(Some(&format!("{new},{SECRET}")), None)).expect("tokens");
    let by_new = by_secret(&json!({ "alg": "HS256" }), &claims(), new.as_bytes());
    assert_eq!(both.judge(&by_new), voter("ada"));
    assert_eq!(both.judge(&hs256(&claims())), voter("ada"));
    let alone = Tokens::open(options(Some(new), None)).expect("tokens");
    assert_eq!(alone.judge(&hs256(&claims())), NOT_VALID);
    for wrong in ["", "short", &format!("{SECRET},"), &format!("{SECRET},short")] {
        assert!(wrong.parse::<JwtSecrets>().is_err(), "{wrong}");
    }
}

#[test]
fn a_token_whose_claims_are_wrong_is_refused() {
    let tokens = by_hs256();
    for (name, value) in [
        ("aud", json!("other")),
        ("aud", json!([])),
        ("aud", json!(7)),
        ("aud", Value::Null),
        ("iss", json!("https://id.example.evil")),
        ("iss", json!(["https://evil.example", "https://id.example"])),
        ("iss", Value::Null),
        ("sub", json!("")),
        ("sub", json!("a\u{7}")),
        ("sub", json!("a".repeat(129))),
        ("sub", json!(7)),
        ("sub", Value::Null),
        ("exp", json!("tomorrow")),
        ("exp", Value::Null),
        ("exp", json!(-1)),
        ("nbf", json!(now() + 120)),
        ("nbf", json!("soon")),
    ] {
        let token = hs256(&with(claims(), name, value.clone()));
        assert_eq!(tokens.judge(&token), NOT_VALID, "{name}: {value}");
    }
    for name in ["aud", "iss", "sub", "exp"] {
        let mut without = claims();
        without.as_object_mut().expect("an object").remove(name);
        assert_eq!(tokens.judge(&hs256(&without)), NOT_VALID, "no {name}");
    }
    let expired = with(claims(), "exp", json!(now() - 60));
    assert_eq!(tokens.judge(&hs256(&expired)), Err(Refused::Expired));
}

#[test]
fn a_claim_that_is_there_twice_is_refused() {
    let twice = claims().to_string().replacen('{', r#"{"sub":"eve","#, 1);
    let token = signed(&json!({ "alg": "HS256" }), &twice, |text| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        hmac::sign(&key, text).as_ref().to_vec()
    });
    assert_eq!(by_hs256().judge(&token), NOT_VALID);
}

#[test]
fn a_token_that_is_forged_cut_or_of_another_kind_is_refused() {
    let tokens = by_hs256();
    let right = hs256(&claims());
    assert_eq!(tokens.judge(&right), voter("ada"));
    for at in (0..right.len()).step_by(3) {
        assert_eq!(tokens.judge(&right[..at]), NOT_VALID, "cut at {at}");
    }
    let (body, signature) = right.rsplit_once('.').expect("a token");
    let (header, payload) = body.split_once('.').expect("a token");
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    let of_eve = URL_SAFE_NO_PAD.encode(with(claims(), "sub", json!("eve")).to_string());
    for forged in [
        format!("{none}.{payload}."),
        format!("{none}.{payload}.{signature}"),
        format!("{header}.{of_eve}.{signature}"),
        format!("{header}.{payload}."),
        format!("{header}.{payload}"),
        format!("{right}.{signature}"),
        format!("{right}="),
        format!("{header}.{payload}.{}", "A".repeat(43)),
        "a".repeat(TOKEN_LIMIT_BYTES + 1),
        String::new(),
    ] {
        assert_eq!(tokens.judge(&forged), NOT_VALID, "{forged}");
    }
    for header in [
        json!({ "alg": "nOnE" }),
        json!({ "alg": "HS384" }),
        json!({ "alg": "RS256" }),
        json!({ "alg": "ES256" }),
        json!({ "typ": "JWT" }),
        json!({ "alg": "HS256", "typ": "logout+jwt" }),
        json!({ "alg": "HS256", "crit": ["b64"], "b64": true }),
        json!({ "alg": "HS256", "crit": [] }),
    ] {
        let token = by_secret(&header, &claims(), SECRET.as_bytes());
        assert_eq!(tokens.judge(&token), NOT_VALID, "{header}");
    }
    let other = by_secret(
        &json!({ "alg": "HS256" }),
        &claims(),
        b"another secret of thirty-two bytes",
    );
    assert_eq!(tokens.judge(&other), NOT_VALID);
}

#[test]
fn a_token_is_checked_with_the_key_that_it_names_and_with_no_key_of_its_own() {
    let (one, other, foreign) = (P256::new(), P256::new(), P256::new());
    let file = file(&[one.jwk("one"), other.jwk("other")]);
    let tokens = Tokens::open(options(None, Some(&file))).expect("tokens");
    let header = |id: &str| json!({ "alg": "ES256", "kid": id });
    assert_eq!(tokens.judge(&one.token(&header("one"), &claims())), voter("ada"));
    assert_eq!(
        tokens.judge(&other.token(&json!({ "alg": "ES256" }), &claims())),
        voter("ada")
    );
    for token in [
        one.token(&header("other"), &claims()),
        one.token(&header("unknown"), &claims()),
        foreign.token(&json!({ "alg": "ES256" }), &claims()),
        foreign.token(&header("one"), &claims()),
        foreign.token(&json!({ "alg": "ES256", "jwk": foreign.jwk("one") }), &claims()),
        foreign.token(
            &json!({ "alg": "ES256", "jku": "https://evil.example/keys" }),
            &claims(),
        ),
        hs256(&claims()),
    ] {
        assert_eq!(tokens.judge(&token), NOT_VALID, "{token}");
    }
}

#[test]
fn a_public_key_is_no_secret() {
    let key = P256::new();
    let file = file(&[key.jwk("one")]);
    let tokens = Tokens::open(options(Some(SECRET), Some(&file))).expect("tokens");
    let jwk = key.jwk("one");
    let text = std::fs::read(file.path()).expect("the file");
    for secret in [
        key.pair.public_key().as_ref().to_vec(),
        jwk["x"].as_str().expect("x").as_bytes().to_vec(),
        jwk.to_string().into_bytes(),
        text,
    ] {
        let token = by_secret(&json!({ "alg": "HS256", "kid": "one" }), &claims(), &secret);
        assert_eq!(tokens.judge(&token), NOT_VALID);
    }
    assert_eq!(tokens.judge(&hs256(&claims())), voter("ada"));
}

#[test]
fn a_file_without_a_key_that_can_be_used_is_refused_and_a_strange_key_beside_one_is_not() {
    let key = P256::new();
    let symmetric = json!({ "kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET), "alg": "HS256" });
    let for_encryption = with(key.jwk("enc"), "use", json!("enc"));
    let of_other_curve = with(key.jwk("384"), "crv", json!("P-384"));
    let short_rsa = json!({ "kty": "RSA", "n": URL_SAFE_NO_PAD.encode([255; 128]), "e": "AQAB" });
    let wrong_point = with(key.jwk("short"), "x", json!("AQAB"));
    for none in [
        &symmetric,
        &for_encryption,
        &of_other_curve,
        &short_rsa,
        &wrong_point,
    ] {
        let file = file(std::slice::from_ref(none));
        let error = Tokens::open(options(None, Some(&file))).err();
        assert!(
            matches!(error, Some(KeysError::NoKeys { usable: 0, .. })),
            "{none}"
        );
    }
    let strange = json!({ "kty": "later", "x": 1 });
    let file_of_both = file(&[strange, symmetric.clone(), key.jwk("one")]);
    let tokens = Tokens::open(options(None, Some(&file_of_both))).expect("tokens");
    assert_eq!(
        tokens.judge(&key.token(&json!({ "alg": "ES256" }), &claims())),
        voter("ada")
    );
    assert_eq!(
        tokens.judge(&hs256(&claims())),
        NOT_VALID,
        "a secret in a file of public keys"
    );
}

#[test]
fn a_token_is_remembered_until_it_expires_and_not_beyond_a_change_of_keys() {
    let (one, other) = (P256::new(), P256::new());
    let keys = file(&[one.jwk("one")]);
    let tokens = Tokens::open(options(None, Some(&keys))).expect("tokens");
    let expires_at = now() + 600;
    let token = one.token(
        &json!({ "alg": "ES256" }),
        &with(claims(), "exp", json!(expires_at)),
    );
    assert_eq!(tokens.judge(&token), voter("ada"));
    let digest = || Digest::of(&[token.as_bytes()]);
    let believed = &tokens.0.believed;
    let remember = |until| {
        let voter_id = VoterId::parse("remembered".to_owned()).expect("a voter");
        believed.add(digest(), Believed { voter_id, until }, believed.asking());
    };
    let until = believed.get(&digest()).expect("it is remembered").until;
    assert_eq!(until, expires_at + CLOCK_LIMIT_SKEW.as_secs());
    // A remembered token is valid, so the second look-up does not check the signature.
    remember(until);
    assert_eq!(tokens.judge(&token), voter("remembered"));
    remember(now() - 1);
    assert_eq!(tokens.judge(&token), voter("ada"));
    let file_of_other = file(&[other.jwk("one")]);
    assert!(tokens.set_keys(again(&file_of_other)));
    assert_eq!(tokens.judge(&token), NOT_VALID);
}

/// What a server reads when a file has changed.
fn again(file: &tempfile::NamedTempFile) -> Keys {
    Keys::read(None, Some(file.path()), WithoutKeys::Allowed).expect("keys")
}

#[test]
fn a_file_whose_keys_were_all_taken_back_leaves_no_token_valid() {
    let key = P256::new();
    let keys = file(&[key.jwk("one")]);
    let token = key.token(&json!({ "alg": "ES256" }), &claims());
    let for_encryption = with(key.jwk("one"), "use", json!("enc"));
    for taken_back in [file(&[]), file(&[for_encryption])] {
        let tokens = Tokens::open(options(Some(SECRET), Some(&keys))).expect("tokens");
        assert_eq!(tokens.judge(&token), voter("ada"));
        assert!(tokens.set_keys(again(&taken_back)));
        assert_eq!(tokens.judge(&token), NOT_VALID);
        // And one that comes back counts again.
        assert!(tokens.set_keys(again(&keys)));
        assert_eq!(tokens.judge(&token), voter("ada"));
    }
    // A server also starts with an empty list: voting goes on for all others.
    let tokens = Tokens::open(options(Some(SECRET), Some(&file(&[])))).expect("tokens");
    assert_eq!(tokens.judge(&token), NOT_VALID);
    assert_eq!(tokens.judge(&hs256(&claims())), voter("ada"));
}

#[test]
fn a_file_of_keys_is_read_with_a_byte_order_mark_and_what_is_no_file_is_refused_at_once() {
    let key = P256::new();
    let text = json!({ "keys": [key.jwk("one")] }).to_string();
    let marked = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(marked.path(), format!("\u{feff}{text}\r\n")).expect("written");
    let tokens = Tokens::open(options(None, Some(&marked))).expect("tokens");
    let token = key.token(&json!({ "alg": "ES256" }), &claims());
    assert_eq!(tokens.judge(&token), voter("ada"));

    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo runs").success());
    for (path, words) in [
        (fifo.as_path(), "it is a FIFO"),
        (folder.path(), "it is a folder"),
        (std::path::Path::new("/dev/zero"), "it is a device"),
    ] {
        let said = Keys::read(None, Some(path), WithoutKeys::Allowed).err();
        let said = said.expect("it is refused").to_string();
        assert!(
            said.starts_with("TALLY_JWT_KEYS: ") && said.contains(words),
            "{said}"
        );
    }
}

#[test]
fn a_secret_with_what_a_file_or_a_shell_put_around_it_is_refused_without_repeating_it() {
    for wrapped in [
        format!("{SECRET}\n"),
        format!("{SECRET}\r\n"),
        format!("\u{feff}{SECRET}"),
        format!("\"{SECRET}\""),
        format!("{SECRET}, {SECRET}"),
    ] {
        let error = wrapped.parse::<JwtSecrets>().expect_err("it is refused");
        assert!(
            error.starts_with("a secret ") && !error.contains(SECRET),
            "{error}"
        );
    }
    assert!(format!("{SECRET},{SECRET}").parse::<JwtSecrets>().is_ok());
}
