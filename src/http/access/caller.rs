//! Who sent a request, by its credential.

use std::net::IpAddr;

use actix_web::dev::Payload;
use actix_web::http::{Method, header};
use actix_web::{FromRequest, HttpRequest, web};
use futures_util::future::{self, Either, LocalBoxFuture};

use crate::domain::{Actor, ApiKey, Scope, VoterId, Who};
use crate::http::problem::Problem;
use crate::http::state::AppState;

use super::Open;
use super::address::client_address;
use super::api_keys::ValidApiKey;

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The credential; `None`: there is none.
    key: Option<ValidApiKey>,
    /// Where the request comes from.
    address: Option<IpAddr>,
    /// What anyone may do.
    open: Open,
}

type Read<T> = Either<future::Ready<Result<T, Problem>>, LocalBoxFuture<'static, Result<T, Problem>>>;

impl FromRequest for Caller {
    type Error = Problem;
    type Future = Read<Self>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match Self::read(request) {
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
    pub(super) fn read(request: &HttpRequest) -> Read<Self> {
        let ready = |answer| Either::Left(future::ready(answer));
        let Some(state) = request.app_data::<web::Data<AppState>>() else {
            return ready(Err(Problem::internal()));
        };
        let open = state.access.open;
        let address = client_address(request);
        match credential(request) {
            Ok(None) => ready(Ok(Self {
                key: None,
                address,
                open,
            })),
            Ok(Some(key)) => {
                let keys = state.access.api_keys.clone();
                Either::Right(Box::pin(async move {
                    match keys.find(&key.hash()).await {
                        Ok(Some(key)) => Ok(Self {
                            key: Some(key),
                            address,
                            open,
                        }),
                        Ok(None) => Err(Problem::credential_not_valid()),
                        Err(error) => Err(error.into()),
                    }
                }))
            }
            Err(problem) => ready(Err(problem)),
        }
    }
}

/// The API key of a request: `Authorization: Bearer tally_…`.
///
/// # Errors
/// When there is another credential, or more than one.
fn credential(request: &HttpRequest) -> Result<Option<ApiKey>, Problem> {
    let mut values = request.headers().get_all(header::AUTHORIZATION);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match bearer(value.as_bytes()) {
            Some(key) => Ok(Some(key)),
            None => Err(Problem::credential_not_valid()),
        },
        (Some(_), Some(_)) => Err(Problem::malformed(
            "Authorization",
            "Authorization: it is given more than once; it takes one value.",
        )),
    }
}

/// Reads the value of an Authorization header: `Bearer` in any case, white space, and an API key.
pub(in crate::http) fn bearer(value: &[u8]) -> Option<ApiKey> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = value.split_at_checked(SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    ApiKey::parse(std::str::from_utf8(token).ok()?.trim_matches(' '))
}

impl Caller {
    fn has(self, scope: Scope) -> bool {
        self.key.is_some_and(|key| key.scopes.has(scope))
    }

    fn may(self, scope: Scope, is_open: bool) -> Result<(), Problem> {
        if is_open || self.has(scope) {
            return Ok(());
        }
        Err(match self.key {
            None => Problem::credential_missing(scope),
            Some(_) => Problem::not_allowed(scope),
        })
    }

    /// Whether this caller may cast a vote of this voter, or one without a voter. A vote with a
    /// ballot needs nothing else.
    ///
    /// # Errors
    /// When the caller may not.
    pub fn may_vote(self, voter: Option<&VoterId>, has_ballot: bool) -> Result<(), Problem> {
        let is_open = match voter {
            None => has_ballot || self.open.anonymous,
            Some(_) => self.open.voters,
        };
        self.may(Scope::Vote, is_open)
    }

    /// Whether this caller may change and see what any voter holds.
    ///
    /// # Errors
    /// When the caller may not.
    pub fn may_act_for_voters(self) -> Result<(), Problem> {
        self.may(Scope::Vote, self.open.voters)
    }

    /// Whether this caller may vote otherwise than with ballots.
    pub fn may_vote_for_some(self) -> bool {
        self.has(Scope::Vote) || self.open.voters || self.open.anonymous
    }

    /// Who this is, for the trail; `None`: it has no credential, and administration is not open.
    pub(super) fn known(self) -> Option<Actor> {
        (self.key.is_some() || self.open.admin).then(|| self.actor())
    }

    /// Who this is, for the trail.
    pub fn actor(self) -> Actor {
        Actor {
            who: self.key.map_or(Who::Anyone, |key| Who::ApiKey(key.id)),
            address: self.address,
        }
    }

    /// Whether this caller's own key allows administration: not because it is open to all.
    pub fn is_admin_by_key(self) -> bool {
        self.has(Scope::Admin)
    }
}

/// A request that the scope `admin` allows, and who sent it.
pub struct Admin(pub Actor);

/// A request that the scope `report` allows.
pub struct Reporter;

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
                match Caller::read(request) {
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
allowed_by!(Reporter, Report, report, |_| Self);
