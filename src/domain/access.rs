//! Who may do what: API keys and their scopes.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use super::{Moment, id, is_invisible, without_wrapping};

/// Random bytes in an API key: 256 bits.
const API_KEY_BYTES: usize = 32;
/// What each API key begins with, so that people and secret scanners recognize it.
pub const API_KEY_PREFIX: &str = "tally_";

/// What an API key allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Vote on behalf of any voter, and read what voters hold.
    Vote,
    /// Create and edit items and polls, create ballots, list and revoke API keys.
    Admin,
    /// Read metrics.
    Report,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Vote, Self::Admin, Self::Report];

    /// The scope's name in settings, on the command line and in the ledger.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vote => "vote",
            Self::Admin => "admin",
            Self::Report => "report",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|scope| scope.name() == text);
        found.ok_or_else(|| "a scope is vote, admin or report".to_owned())
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// Whether the set has this scope.
    pub fn has(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }

    /// The scopes' names, in a fixed order.
    pub fn names(self) -> Vec<&'static str> {
        let all = Scope::ALL.into_iter();
        all.filter(|scope| self.has(*scope)).map(Scope::name).collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Self {
        Self(scopes.into_iter().fold(0, |set, scope| set | 1 << scope as u8))
    }
}

/// What voters without a credential may do on one item or in one poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenTo {
    /// Vote without a voter.
    pub anonymous: bool,
    /// Vote as any voter, and see what a voter holds.
    pub voters: bool,
}

impl OpenTo {
    /// The one with these names; `None`: a name is neither `anonymous` nor `voters`.
    pub fn of(names: &[String]) -> Option<Self> {
        let mut open = Self::default();
        for name in names {
            match name.as_str() {
                "anonymous" => open.anonymous = true,
                "voters" => open.voters = true,
                _ => return None,
            }
        }
        Some(open)
    }

    /// The names, in a fixed order.
    pub fn names(self) -> Vec<&'static str> {
        let names = [("anonymous", self.anonymous), ("voters", self.voters)];
        names
            .into_iter()
            .filter_map(|(name, is_open)| is_open.then_some(name))
            .collect()
    }
}

/// An API key as its holder has it. It is `tally_` and [`API_KEY_BYTES`] random bytes in lowercase
/// hexadecimal digits. Whoever has it may use it, so no log shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// A key that nobody has.
    pub fn fresh() -> Self {
        let halves: [u128; API_KEY_BYTES / 16] = rand::random();
        Self(format!("{API_KEY_PREFIX}{:032x}{:032x}", halves[0], halves[1]))
    }

    /// Takes a text that has the form of a key, without what files and shells put around it.
    pub fn parse(text: &str) -> Option<Self> {
        let text = without_wrapping(text);
        has_form(text).then(|| Self(text.to_owned()))
    }

    /// The hash of the key with this text; `None`: it does not have the form of a key.
    pub fn hash_of(text: &str) -> Option<ApiKeyHash> {
        has_form(text).then(|| ApiKeyHash(Sha256::digest(text).into()))
    }

    /// The text, for its holder.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hash that is kept of the key.
    pub fn hash(&self) -> ApiKeyHash {
        ApiKeyHash(Sha256::digest(&self.0).into())
    }
}

/// Whether a text has the form of a key.
fn has_form(text: &str) -> bool {
    let digits = text.strip_prefix(API_KEY_PREFIX).unwrap_or_default();
    digits.len() == 2 * API_KEY_BYTES
        && digits
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ApiKey(…)")
    }
}

/// SHA-256 of an API key's text. Keys are looked up by it, so the time of a look-up tells nothing
/// about any key: nobody can choose the bytes of a hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ApiKeyHash([u8; 32]);

impl ApiKeyHash {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// An API key's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ApiKeyId(pub i64);

/// Accepts what [`super::ItemId`] accepts.
impl FromStr for ApiKeyId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        id::parse(text).map(Self)
    }
}

/// The longest name of an API key. migrations/0004_access.sql has the same limit.
pub const API_KEY_NAME_LIMIT_CHARACTERS: usize = 100;

/// Why a text is no name of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidApiKeyName {
    #[error("the name has {0} characters; it takes 1 to {API_KEY_NAME_LIMIT_CHARACTERS}")]
    Length(usize),
    #[error("the name has a control character; it takes printable characters")]
    Control,
    #[error("the name has only characters that nobody can see; it takes a visible one")]
    Invisible,
}

/// Checks that an API key may have this name.
///
/// # Errors
/// When the key may not have the name.
pub fn check_api_key_name(name: &str) -> Result<(), InvalidApiKeyName> {
    let characters = name.chars().count();
    if !(1..=API_KEY_NAME_LIMIT_CHARACTERS).contains(&characters) {
        return Err(InvalidApiKeyName::Length(characters));
    }
    if name.chars().any(char::is_control) {
        return Err(InvalidApiKeyName::Control);
    }
    if is_invisible(name) {
        return Err(InvalidApiKeyName::Invisible);
    }
    Ok(())
}

/// An API key that is to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewApiKey {
    pub name: String,
    pub scopes: Scopes,
    pub expires_at: Option<Moment>,
}

/// What is known of an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeyInfo {
    pub id: ApiKeyId,
    pub name: String,
    pub scopes: Scopes,
    pub created_at: Moment,
    pub expires_at: Option<Moment>,
    pub last_used_at: Option<Moment>,
    pub revoked_at: Option<Moment>,
    /// Whether the key is valid now.
    pub is_valid: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_key_is_never_the_same_and_is_shown_by_no_debug_output() {
        let (one, other) = (ApiKey::fresh(), ApiKey::fresh());
        assert_ne!(one, other);
        assert!(one.hash() != other.hash());
        assert_eq!(ApiKey::parse(one.as_str()), Some(one.clone()));
        assert!(!format!("{one:?}").contains(one.as_str()));
    }

    /// A look-up may take longer, the more first bytes of a hash are right. However many digits of
    /// a key a guesser has right, that shows nothing about its hash.
    #[test]
    fn keys_that_are_almost_the_same_have_hashes_that_share_nothing() {
        const KEYS: u32 = 20;
        const BITS: u32 = 256;
        let mut differing_bits = [0; 2 * API_KEY_BYTES];
        for _ in 0..KEYS {
            let key = ApiKey::fresh();
            for (at, differing) in differing_bits.iter_mut().enumerate() {
                let digit = API_KEY_PREFIX.len() + at;
                let other = if key.0.as_bytes()[digit] == b'0' { "1" } else { "0" };
                let mut text = key.0.clone();
                text.replace_range(digit..=digit, other);
                let (one, other) = (key.hash(), ApiKey::parse(&text).expect("a key").hash());
                let pairs = || one.0.iter().zip(&other.0);
                let shared_bytes = pairs().take_while(|(one, other)| one == other).count();
                assert!(shared_bytes < 4, "{shared_bytes} first bytes with digit {at}");
                *differing += pairs()
                    .map(|(one, other)| (one ^ other).count_ones())
                    .sum::<u32>();
            }
        }
        // Half of the bits differ by chance. Nine standard deviations: 8 bits a key.
        for (at, differing) in differing_bits.iter().enumerate() {
            let off = differing.abs_diff(KEYS * BITS / 2);
            assert!(off < 9 * 8 * 5, "digit {at}: {differing} of {}", KEYS * BITS);
        }
    }

    #[test]
    fn what_is_no_api_key_is_not_read_as_one() {
        let one = ApiKey::fresh();
        let text = one.as_str();
        for wrong in [
            "",
            "tally_",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}0"),
            &text.to_uppercase(),
            &text.replace("tally_", "Tally_"),
        ] {
            assert_eq!(ApiKey::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_set_of_scopes_has_what_it_was_made_of() {
        let set: Scopes = [Scope::Report, Scope::Vote].into_iter().collect();
        assert_eq!(set.names(), ["vote", "report"]);
        assert!(!set.has(Scope::Admin));
        assert_eq!(Scopes::default().names(), [""; 0]);
    }
}
