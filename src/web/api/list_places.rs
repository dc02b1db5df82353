//! Places for public reads that look at many rows: lists, searches, histories, the page of all items and polls.
//!
//! Such a read costs the server and Postgres more than a vote. Few are done at once; the others wait for a
//! place, each client address for its own.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, web};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::domain::client_network;
use crate::telemetry::name;
use crate::web::access::client_address;
use crate::web::limits::{LISTS_LIMIT, LISTS_LIMIT_BY_ADDRESS, LISTS_LIMIT_WAITING_BY_ADDRESS};
use crate::web::problem::{Kind, Problem};

/// How long a request waits for a place.
const PLACE_LIMIT: Duration = Duration::from_secs(1);

/// The places of a server. Cheap to clone.
#[derive(Clone)]
pub struct ListPlaces {
    all: Arc<Semaphore>,
    by_address: Arc<Mutex<HashMap<Ipv6Addr, Client>>>,
}

/// The requests of one client address.
struct Client {
    places: Arc<Semaphore>,
    /// With those that wait.
    requests: usize,
}

/// The place of a request that reads a list. It is free again when the request is answered.
pub struct ListPlace {
    _of_all: OwnedSemaphorePermit,
    _of_address: Option<(OwnedSemaphorePermit, Counted)>,
}

/// A request that is counted for its client address.
struct Counted {
    places: ListPlaces,
    network: Ipv6Addr,
}

impl Default for ListPlaces {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(LISTS_LIMIT)),
            by_address: Arc::default(),
        }
    }
}

impl ListPlaces {
    /// Takes a place for this client network, or waits for one for so long. `None`: the connection closed before its
    /// address was known.
    async fn take(&self, network: Option<Ipv6Addr>, wait: Duration) -> Result<ListPlace, Problem> {
        let of_address = match network {
            Some(network) => Some(self.take_of_address(network, wait).await?),
            None => None,
        };
        let waiting = timeout(wait, Arc::clone(&self.all).acquire_owned());
        let Ok(Ok(of_all)) = waiting.await else {
            return Err(refused(
                "server",
                Kind::TooManyLists,
                "This server reads as many lists as it can; ask later.",
            ));
        };
        Ok(ListPlace {
            _of_all: of_all,
            _of_address: of_address,
        })
    }

    async fn take_of_address(
        &self,
        network: Ipv6Addr,
        wait: Duration,
    ) -> Result<(OwnedSemaphorePermit, Counted), Problem> {
        let too_many = || {
            let detail = format!(
                "One client address may ask for {LISTS_LIMIT_BY_ADDRESS} lists, searches and histories at once; wait \
                 for an answer before you ask again."
            );
            refused("address", Kind::TooManyListsOfAddress, &detail)
        };
        let (places, counted) = self.count(network).ok_or_else(too_many)?;
        match timeout(wait, places.acquire_owned()).await {
            Ok(Ok(place)) => Ok((place, counted)),
            _ => Err(too_many()),
        }
    }

    /// Counts a request of this network. `None`: too many of its requests wait already.
    fn count(&self, network: Ipv6Addr) -> Option<(Arc<Semaphore>, Counted)> {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let client = by_address.entry(network).or_insert_with(|| Client {
            places: Arc::new(Semaphore::new(LISTS_LIMIT_BY_ADDRESS)),
            requests: 0,
        });
        if client.requests >= LISTS_LIMIT_BY_ADDRESS + LISTS_LIMIT_WAITING_BY_ADDRESS {
            return None;
        }
        client.requests += 1;
        let counted = Counted {
            places: self.clone(),
            network,
        };
        Some((Arc::clone(&client.places), counted))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let by_address = &self.places.by_address;
        let mut by_address = by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = by_address.get_mut(&self.network) {
            client.requests -= 1;
            if client.requests == 0 {
                by_address.remove(&self.network);
            }
        }
    }
}

impl FromRequest for ListPlace {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let places = request.app_data::<web::Data<ListPlaces>>().cloned();
        let network = client_address(request).map(client_network);
        Box::pin(async move {
            places
                .ok_or_else(Problem::internal)?
                .take(network, PLACE_LIMIT)
                .await
        })
    }
}

fn refused(by: &'static str, kind: Kind, detail: &str) -> Problem {
    metrics::counter!(name::LISTS_REFUSED, "by" => by).increment(1);
    Problem::new(kind, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(place: &Result<ListPlace, Problem>) -> Option<Kind> {
        place.as_ref().err().map(Problem::kind)
    }

    #[tokio::test]
    async fn an_address_waits_for_its_own_places_and_leaves_the_others_places_free() {
        let places = ListPlaces::default();
        let [here, there] = [Some(Ipv6Addr::LOCALHOST), Some(Ipv6Addr::UNSPECIFIED)];
        let mut held = Vec::new();
        for _ in 0..LISTS_LIMIT_BY_ADDRESS {
            held.push(
                places
                    .take(here, Duration::ZERO)
                    .await
                    .map_err(|problem| problem.kind())
                    .expect("a place"),
            );
        }
        assert_eq!(
            kind(&places.take(here, Duration::ZERO).await),
            Some(Kind::TooManyListsOfAddress)
        );
        assert_eq!(kind(&places.take(there, Duration::ZERO).await), None);
        // A place that is given back goes to the one that waits.
        let (waiting, ()) = tokio::join!(places.take(here, PLACE_LIMIT), async { drop(held.pop()) });
        assert_eq!(kind(&waiting), None);
        drop((waiting, held));
        assert!(places.by_address.lock().expect("no panic").is_empty());
        assert_eq!(places.all.available_permits(), LISTS_LIMIT);
    }

    #[tokio::test]
    async fn a_server_without_a_free_place_says_so() {
        let places = ListPlaces::default();
        let mut held = Vec::new();
        for at in 0..LISTS_LIMIT {
            let network = Ipv6Addr::from_bits(u128::try_from(at).expect("a number"));
            held.push(
                places
                    .take(Some(network), Duration::ZERO)
                    .await
                    .map_err(|problem| problem.kind())
                    .expect("a place"),
            );
        }
        assert_eq!(
            kind(&places.take(None, Duration::ZERO).await),
            Some(Kind::TooManyLists)
        );
    }

    #[tokio::test]
    async fn beyond_those_that_wait_an_address_is_refused_at_once() {
        let places = ListPlaces::default();
        let network = Ipv6Addr::LOCALHOST;
        let all = LISTS_LIMIT_BY_ADDRESS + LISTS_LIMIT_WAITING_BY_ADDRESS;
        let waiting: Vec<_> = (0..all)
            .map(|_| places.count(network).expect("a count"))
            .collect();
        assert!(places.count(network).is_none());
        drop(waiting);
        assert!(places.count(network).is_some());
    }
}
