//! Who sent a request, according to its credential.

use std::net::IpAddr;

use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::{FromRequest, HttpMessage, HttpRequest, web};
use futures_util::future::{self, Either, LocalBoxFuture};

use crate::domain::{Actor, ApiKey, ApiKeyId, OpenTo, Scope, Scopes, VoterId, Who};
use crate::web::problem::{Kind, Problem};

use crate::web::access::address::client_address;
use crate::web::access::api_keys::ValidApiKey;
use crate::web::access::cookies::FoundCookie;
use crate::web::access::jwt::TokenError;
use crate::web::access::{Access, Open};

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    credential: Credential,
    /// The client's address.
    address: Option<IpAddr>,
    /// What anyone may do without a credential.
    open: Open,
}

/// The credential of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Credential {
    /// Nothing.
    None,
    ApiKey(ValidApiKey),
    /// The voter's own token or cookie.
    Voter(VoterId),
}

/// Whose idempotency keys a caller uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender<'a> {
    /// The voter of the caller's own token or cookie.
    Voter(&'a VoterId),
    /// Whoever has an API key with the scope `vote`.
    Backend,
    /// Everyone else.
    Anyone,
}

type Read<T> = Either<future::Ready<Result<T, Problem>>, LocalBoxFuture<'static, Result<T, Problem>>>;

impl FromRequest for Caller {
    type Error = Problem;
    type Future = Read<Self>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match Self::read(request, false) {
            Either::Right(asked) if !is_read => {
                Either::Right(Box::pin(
                    async move { asked.await.map_err(Problem::without_vote) },
                ))
            }
            other => other,
        }
    }
}

impl Caller {
    /// Reads the caller. With `is_forgiven`, a cookie that is not valid counts as no cookie.
    pub(super) fn read(request: &HttpRequest, is_forgiven: bool) -> Read<Self> {
        let ready = |answer| Either::Left(future::ready(answer));
        let Some(access) = request.app_data::<web::Data<Access>>() else {
            return ready(Err(Problem::internal()));
        };
        let (open, address) = (access.options.open, client_address(request));
        let caller = move |credential| Self {
            credential,
            address,
            open,
        };
        let credential = match authorization(request.headers()) {
            Err(problem) => Err(problem),
            // A header that a program sets counts for more than a cookie that a browser adds by itself.
            Ok(None) => match of_cookie(request, access) {
                Err(_) if is_forgiven => Ok(Credential::None),
                credential => credential,
            },
            Ok(Some(token)) => match ApiKey::hash_of(token) {
                Some(hash) => {
                    let Some(found) = access.api_keys.remembered(&hash) else {
                        let keys = access.api_keys.clone();
                        return Either::Right(Box::pin(async move {
                            let found = keys.find(&hash).await?;
                            Ok(caller(of_api_key(found)?))
                        }));
                    };
                    of_api_key(found)
                }
                None => of_token(token, access),
            },
        };
        ready(credential.map(caller))
    }
}

fn of_api_key(found: Option<ValidApiKey>) -> Result<Credential, Problem> {
    found
        .map(Credential::ApiKey)
        .ok_or_else(Problem::api_key_not_valid)
}

fn of_token(token: &str, access: &Access) -> Result<Credential, Problem> {
    let Some(tokens) = &access.tokens else {
        return Err(Problem::takes_no_tokens());
    };
    match tokens.voter(token) {
        Ok(voter_id) => Ok(Credential::Voter(voter_id)),
        Err(TokenError::Expired) => Err(Problem::token_expired()),
        Err(TokenError::NotValid(why)) => Err(Problem::token_not_valid(&why)),
    }
}

fn of_cookie(request: &HttpRequest, access: &Access) -> Result<Credential, Problem> {
    let Some(cookies) = &access.options.cookies else {
        return Ok(Credential::None);
    };
    match cookies.find(request.headers()) {
        FoundCookie::None => Ok(Credential::None),
        FoundCookie::NotValid => Err(Problem::cookie_not_valid()),
        FoundCookie::Voter { voter_id, is_renewed } => {
            if is_renewed && let Some(cookie) = cookies.issue(&voter_id) {
                request.extensions_mut().insert(RenewedCookie(cookie));
            }
            Ok(Credential::Voter(voter_id))
        }
    }
}

/// A new cookie for the answer to this request.
pub(super) struct RenewedCookie(pub HeaderValue);

/// Returns the token of a request: `Authorization: Bearer …`. Fails when there is another credential, or more
/// than one.
fn authorization(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(header::AUTHORIZATION);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match bearer(value.as_bytes()) {
            Some(token) => Ok(Some(token)),
            None => Err(Problem::authorization_not_valid()),
        },
        (Some(_), Some(_)) => Err(Problem::malformed(
            "Authorization",
            "Authorization: it is given more than once; it takes one value.",
        )),
    }
}

/// Reads the value of an Authorization header (RFC 6750, 2.1).
///
/// The value is `Bearer` in any case, spaces, and a token.
pub(in crate::web) fn bearer(value: &[u8]) -> Option<&str> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = value.split_at_checked(SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    let token = std::str::from_utf8(token).ok()?.trim_matches(' ');
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    (!token.is_empty() && token.bytes().all(is_token)).then_some(token)
}

impl Caller {
    fn has(&self, scope: Scope) -> bool {
        matches!(self.credential, Credential::ApiKey(key) if key.scopes.has(scope))
    }

    fn may(&self, scope: Scope, is_open: bool) -> Result<(), Problem> {
        if is_open || self.has(scope) {
            return Ok(());
        }
        Err(match self.credential {
            Credential::None => Problem::credential_missing(scope),
            Credential::ApiKey(_) => Problem::not_allowed(scope),
            Credential::Voter(_) => Problem::voter_not_allowed(scope),
        })
    }

    /// Returns whether an open item helps this caller. A voter's own credential already decides.
    pub fn may_be_anyone(&self) -> bool {
        !matches!(self.credential, Credential::Voter(_))
    }

    /// Checks that this caller may cast a vote of this voter, or an anonymous vote.
    ///
    /// `to` says to whom the item is open. A vote with a ballot needs no credential.
    pub fn may_vote(&self, named: Option<&VoterId>, has_ballot: bool, to: OpenTo) -> Result<(), Problem> {
        match (&self.credential, named) {
            (_, None) if has_ballot => Ok(()),
            (Credential::Voter(own), Some(other)) if own != other => Err(Problem::not_your_vote()),
            (Credential::Voter(_), _) => Ok(()),
            (_, None) => self.may(Scope::Vote, self.open.anonymous || to.anonymous),
            (_, Some(_)) => self.may(Scope::Vote, self.open.voters || to.voters),
        }
    }

    /// Returns the voter of a vote that names this voter or none. A vote with a ballot has no voter.
    pub fn voter(&self, named: Option<VoterId>, has_ballot: bool) -> Option<VoterId> {
        named.or_else(|| self.own_voter().filter(|_| !has_ballot).cloned())
    }

    /// Checks that this caller may change and see this voter's vote.
    ///
    /// `to` says to whom the item is open.
    pub fn may_act_for(&self, voter: &VoterId, to: OpenTo) -> Result<(), Problem> {
        match &self.credential {
            Credential::Voter(own) if own == voter => Ok(()),
            Credential::Voter(_) => Err(Problem::not_your_vote()),
            _ => self.may(Scope::Vote, self.open.voters || to.voters),
        }
    }

    /// Returns whether this caller may vote without a ballot as more than its own voter.
    pub fn may_vote_for_some(&self) -> bool {
        self.has(Scope::Vote) || self.open.voters || self.open.anonymous
    }

    /// Checks that this caller may have a cookie of this voter.
    ///
    /// An open server (`voters`) does not allow it: the cookie would stay valid after the server is closed.
    pub fn may_become(&self, voter: &VoterId) -> Result<(), Problem> {
        match &self.credential {
            Credential::Voter(own) if own == voter => Ok(()),
            Credential::Voter(_) => Err(Problem::not_your_vote()),
            _ => self.may(Scope::Vote, false),
        }
    }

    /// Returns the voter of this caller's own cookie or token.
    pub fn own_voter(&self) -> Option<&VoterId> {
        match &self.credential {
            Credential::Voter(own) => Some(own),
            _ => None,
        }
    }

    /// Returns whose idempotency keys this caller uses.
    pub fn sender(&self) -> Sender<'_> {
        match &self.credential {
            Credential::Voter(own) => Sender::Voter(own),
            _ if self.has(Scope::Vote) => Sender::Backend,
            _ => Sender::Anyone,
        }
    }

    /// Returns this caller's API key. `None`: it has none.
    pub fn api_key(&self) -> Option<ApiKeyId> {
        match self.credential {
            Credential::ApiKey(key) => Some(key.id),
            Credential::None | Credential::Voter(_) => None,
        }
    }

    /// Returns the address of the voting client. `None`: a backend votes for many voters.
    pub fn voting_address(&self) -> Option<IpAddr> {
        self.address.filter(|_| !self.has(Scope::Vote))
    }

    /// Checks that this caller may create a key with these scopes. It must have each of them, or the server must
    /// be open for what they allow.
    pub fn may_give(&self, scopes: Scopes) -> Result<(), Problem> {
        for scope in Scope::ALL.into_iter().filter(|scope| scopes.has(*scope)) {
            let (is_open, opened_by) = match scope {
                Scope::Vote => (self.open.voters, "voters"),
                Scope::Admin => (self.open.admin, "admin"),
                Scope::Report => (self.open.report, "report"),
            };
            self.may(scope, is_open)
                .map_err(|problem| problem.of_scope_to_give(scope, opened_by))?;
        }
        Ok(())
    }

    /// Checks that this caller may become a new voter.
    pub fn may_visit(&self) -> Result<(), Problem> {
        self.may(Scope::Vote, self.open.visitors)
    }

    /// Returns who this is, for the trail. `None`: it has no API key, and administration is not open.
    pub(super) fn known(&self) -> Option<Actor> {
        let is_known = self.open.admin || matches!(self.credential, Credential::ApiKey(_));
        is_known.then(|| self.actor())
    }

    /// Returns who this is, for the trail.
    pub fn actor(&self) -> Actor {
        Actor {
            who: match self.credential {
                Credential::ApiKey(key) => Who::ApiKey(key.id),
                Credential::None | Credential::Voter(_) => Who::Anyone,
            },
            address: self.address,
        }
    }

    /// Returns whether the caller's own key allows administration, not just an open server.
    pub fn is_admin_by_key(&self) -> bool {
        self.has(Scope::Admin)
    }
}

/// The caller of a request for a cookie. A cookie that is not valid does not prevent a new one.
pub struct Visitor(pub Caller);

impl FromRequest for Visitor {
    type Error = Problem;
    type Future = Read<Self>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        match Caller::read(request, true) {
            Either::Left(ready) => Either::Left(future::ready(ready.into_inner().map(Self))),
            Either::Right(asked) => Either::Right(Box::pin(async move { asked.await.map(Self) })),
        }
    }
}

/// Whether the request has an API key with the scope `admin`. It reads no cookie.
pub struct IsAdmin(pub bool);

impl FromRequest for IsAdmin {
    type Error = Problem;
    type Future = Read<Self>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        if !request.headers().contains_key(header::AUTHORIZATION) {
            return Either::Left(future::ready(Ok(Self(false))));
        }
        // Whoever has another credential, or one that is not valid, is no administrator.
        let check = |caller: Result<Caller, Problem>| match caller {
            Ok(caller) => Ok(Self(caller.is_admin_by_key())),
            Err(problem) if problem.kind() == Kind::Unavailable => Err(problem),
            Err(_) => Ok(Self(false)),
        };
        match Caller::read(request, false) {
            Either::Left(ready) => Either::Left(future::ready(check(ready.into_inner()))),
            Either::Right(asked) => Either::Right(Box::pin(async move { check(asked.await) })),
        }
    }
}

/// The sender of a request that the scope `admin` allows.
pub struct Admin(pub Actor);

/// A request that the scope `report` allows.
pub struct Reporter;

impl FromRequest for Reporter {
    type Error = Problem;
    type Future = Read<Self>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let check = |caller: Caller| {
            caller.may(Scope::Report, caller.open.report)?;
            Ok(Self)
        };
        let asked = match Caller::read(request, false) {
            Either::Left(ready) => return Either::Left(future::ready(ready.into_inner().and_then(check))),
            Either::Right(asked) => asked,
        };
        // The key is not remembered. Metrics are read while Postgres does not answer, too.
        let token = authorization(request.headers()).ok().flatten();
        let hash = token.and_then(ApiKey::hash_of);
        let access = request.app_data::<web::Data<Access>>();
        let (Some(access), Some(hash)) = (access, hash) else {
            return Either::Right(Box::pin(async move { asked.await.and_then(check) }));
        };
        let keys = access.api_keys.clone();
        Either::Right(Box::pin(async move {
            match keys.still_reports(&hash).await {
                Some(true) => Ok(Self),
                Some(false) | None => asked.await.and_then(check),
            }
        }))
    }
}

macro_rules! allowed_by {
    ($name:ident, $scope:ident, $open:ident, $made:expr) => {
        impl FromRequest for $name {
            type Error = Problem;
            type Future = Read<Self>;

            fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
                let check = |caller: Caller| {
                    caller.may(Scope::$scope, caller.open.$open)?;
                    Ok($made(caller))
                };
                match Caller::read(request, false) {
                    Either::Left(ready) => Either::Left(future::ready(ready.into_inner().and_then(check))),
                    Either::Right(asked) => {
                        Either::Right(Box::pin(async move { asked.await.and_then(check) }))
                    }
                }
            }
        }
    };
}

allowed_by!(Admin, Admin, admin, |caller: Caller| Self(caller.actor()));
