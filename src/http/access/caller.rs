//! Who sent a request, by its credential.

use actix_web::dev::Payload;
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::{FromRequest, HttpMessage, HttpRequest, web};
use futures_util::future::{self, Either, LocalBoxFuture};

use crate::domain::{ApiKey, Scope, Scopes, VoterId};
use crate::http::problem::Problem;
use crate::http::state::AppState;

use super::cookies::FoundCookie;
use super::jwt::TokenError;
use super::{Access, ApiKeys, Open};

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    who: Who,
    /// What anyone may do.
    open: Open,
}

/// Who it is, by the credential.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    /// There is no credential.
    Anyone,
    /// The holder of an API key that allows this.
    Key(Scopes),
    /// A voter, by a token or a cookie of its own.
    Voter(VoterId),
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
    /// With `is_forgiven`, a cookie that is not valid is none.
    fn read(request: &HttpRequest, is_forgiven: bool) -> Read<Self> {
        let ready = |answer| Either::Left(future::ready(answer));
        let Some(state) = request.app_data::<web::Data<AppState>>() else {
            return ready(Err(Problem::internal()));
        };
        let open = state.access.open;
        let who = match authorization(request.headers()) {
            Err(problem) => Err(problem),
            // What a program says counts for more than what a browser adds by itself.
            Ok(None) => match of_cookie(request, &state.access) {
                Err(_) if is_forgiven => Ok(Who::Anyone),
                who => who,
            },
            Ok(Some(token)) => match ApiKey::parse(token) {
                Some(key) => {
                    return Either::Right(Box::pin(of_key(state.access.api_keys.clone(), key, open)));
                }
                None => of_token(token, &state.access),
            },
        };
        ready(who.map(|who| Self { who, open }))
    }
}

async fn of_key(keys: ApiKeys, key: ApiKey, open: Open) -> Result<Caller, Problem> {
    match keys.scopes(&key.hash()).await? {
        Some(scopes) => Ok(Caller {
            who: Who::Key(scopes),
            open,
        }),
        None => Err(Problem::credential_not_valid()),
    }
}

fn of_token(token: &str, access: &Access) -> Result<Who, Problem> {
    let Some(tokens) = &access.tokens else {
        return Err(Problem::credential_not_valid());
    };
    match tokens.voter(token) {
        Ok(voter_id) => Ok(Who::Voter(voter_id)),
        Err(TokenError::Expired) => Err(Problem::token_expired()),
        Err(TokenError::NotValid) => Err(Problem::credential_not_valid()),
    }
}

fn of_cookie(request: &HttpRequest, access: &Access) -> Result<Who, Problem> {
    let Some(cookies) = &access.cookies else {
        return Ok(Who::Anyone);
    };
    match cookies.find(request.headers()) {
        FoundCookie::None => Ok(Who::Anyone),
        FoundCookie::NotValid => Err(Problem::cookie_not_valid()),
        FoundCookie::Voter { voter_id, is_renewed } => {
            if let Some(cookie) = cookies.issue(&voter_id).filter(|_| is_renewed) {
                request.extensions_mut().insert(RenewedCookie(cookie));
            }
            Ok(Who::Voter(voter_id))
        }
    }
}

/// A cookie that the answer to this request brings.
pub(super) struct RenewedCookie(pub HeaderValue);

/// The token of a request: `Authorization: Bearer …`.
///
/// # Errors
/// When there is another credential, or more than one.
fn authorization(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(header::AUTHORIZATION);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match bearer(value.as_bytes()) {
            Some(token) => Ok(Some(token)),
            None => Err(Problem::credential_not_valid()),
        },
        (Some(_), Some(_)) => Err(Problem::malformed(
            "Authorization",
            "Authorization: it is given more than once; it takes one value.",
        )),
    }
}

/// Reads the value of an Authorization header: `Bearer` in any case, spaces, and a token (RFC 6750,
/// 2.1).
pub(in crate::http) fn bearer(value: &[u8]) -> Option<&str> {
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
        matches!(self.who, Who::Key(scopes) if scopes.has(scope))
    }

    fn may(&self, scope: Scope, is_open: bool) -> Result<(), Problem> {
        if is_open || self.has(scope) {
            return Ok(());
        }
        Err(match self.who {
            Who::Anyone => Problem::credential_missing(scope),
            Who::Key(_) | Who::Voter(_) => Problem::not_allowed(scope),
        })
    }

    /// Whose vote it is that this caller casts, having named this voter or none. A vote with a ballot
    /// needs no credential, and stays without a voter.
    ///
    /// # Errors
    /// When the caller may not cast it.
    pub fn voter(&self, named: Option<VoterId>, has_ballot: bool) -> Result<Option<VoterId>, Problem> {
        match (&self.who, &named) {
            (_, None) if has_ballot => Ok(None),
            (Who::Voter(own), None) => Ok(Some(own.clone())),
            (Who::Voter(own), Some(other)) if own != other => Err(Problem::not_your_vote()),
            (Who::Voter(_), Some(_)) => Ok(named),
            (_, None) => self.may(Scope::Vote, self.open.anonymous).map(|()| named),
            (_, Some(_)) => self.may(Scope::Vote, self.open.voters).map(|()| named),
        }
    }

    /// Whether this caller may change and see what this voter holds.
    ///
    /// # Errors
    /// When the caller may not.
    pub fn may_act_for(&self, voter: &VoterId) -> Result<(), Problem> {
        match &self.who {
            Who::Voter(own) if own == voter => Ok(()),
            Who::Voter(_) => Err(Problem::not_your_vote()),
            _ => self.may(Scope::Vote, self.open.voters),
        }
    }

    /// Whether this caller may vote otherwise than with ballots and as the one voter that it is.
    pub fn may_vote_for_some(&self) -> bool {
        self.has(Scope::Vote) || self.open.voters || self.open.anonymous
    }

    /// The voter that this caller is, by a credential of the voter's own.
    pub fn own_voter(&self) -> Option<&VoterId> {
        match &self.who {
            Who::Voter(own) => Some(own),
            _ => None,
        }
    }

    /// Whether this caller votes for others, so that its address is nobody's in particular.
    pub fn is_backend(&self) -> bool {
        self.has(Scope::Vote)
    }

    /// Whether this caller may become a new voter.
    ///
    /// # Errors
    /// When the caller may not.
    pub fn may_visit(&self) -> Result<(), Problem> {
        self.may(Scope::Vote, self.open.visitors)
    }

    /// Whether this caller's own key allows administration: not because it is open to all.
    pub fn is_admin_by_key(&self) -> bool {
        self.has(Scope::Admin)
    }
}

/// Who asks for a cookie: one that is not valid is no obstacle to another.
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

/// A request that the scope `admin` allows.
pub struct Admin;

/// A request that the scope `report` allows.
pub struct Reporter;

macro_rules! allowed_by {
    ($name:ident, $scope:ident, $open:ident) => {
        impl FromRequest for $name {
            type Error = Problem;
            type Future = Read<Self>;

            fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
                let check = |caller: Caller| caller.may(Scope::$scope, caller.open.$open).map(|()| Self);
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

allowed_by!(Admin, Admin, admin);
allowed_by!(Reporter, Report, report);
