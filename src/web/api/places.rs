//! Places: how many things of one kind a server does at once, in all and for one client address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use crate::domain::client_network;

/// Counts what a server does against two limits. Cheap to clone.
#[derive(Clone)]
pub struct Places(Arc<Inner>);

struct Inner {
    limit: usize,
    limit_by_address: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    total: usize,
    by_address: HashMap<Ipv6Addr, usize>,
}

/// A place that is taken. Dropping it frees the place.
pub struct Place {
    places: Places,
    /// `None`: the connection closed before its address was known.
    network: Option<Ipv6Addr>,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    Server,
    Address,
}

impl NoPlace {
    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Address => "address",
        }
    }
}

impl Places {
    pub fn new(limit: usize, limit_by_address: usize) -> Self {
        Self(Arc::new(Inner {
            limit,
            limit_by_address,
            taken: Mutex::default(),
        }))
    }

    /// How many places one address may have.
    pub fn limit_by_address(&self) -> usize {
        self.0.limit_by_address
    }

    /// Takes a place for a client at this address.
    ///
    /// # Errors
    /// When the server, or this address, has as many as it may have.
    pub fn take(&self, address: Option<IpAddr>) -> Result<Place, NoPlace> {
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.total >= self.0.limit {
            return Err(NoPlace::Server);
        }
        let network = address.map(client_network);
        if let Some(network) = network {
            let of_address = taken.by_address.entry(network).or_default();
            if *of_address >= self.0.limit_by_address {
                return Err(NoPlace::Address);
            }
            *of_address += 1;
        }
        taken.total += 1;
        Ok(Place {
            places: self.clone(),
            network,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.total -= 1;
        if let Some(network) = self.network
            && let Some(of_address) = taken.by_address.get_mut(&network)
        {
            *of_address -= 1;
            if *of_address == 0 {
                taken.by_address.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let places = Places::new(3, 2);
        let here: Option<IpAddr> = Some("192.0.2.1".parse().expect("an address"));
        let there: Option<IpAddr> = Some("2001:db8::1".parse().expect("an address"));
        let first = places.take(here).expect("a place");
        let _second = places.take(here).expect("a place");
        assert_eq!(places.take(here).err(), Some(NoPlace::Address));
        let _third = places.take(there).expect("a place");
        assert_eq!(places.take(there).err(), Some(NoPlace::Server));
        drop(first);
        let _again = places.take(here).expect("a place");
        drop((_second, _third, _again));
        let taken = places.0.taken.lock().expect("no panic");
        assert_eq!((taken.total, taken.by_address.len()), (0, 0));
    }

    #[test]
    fn a_network_of_64_bits_is_one_client() {
        let places = Places::new(3, 1);
        let of = |text: &str| places.take(Some(text.parse().expect("an address")));
        let _one = of("2001:db8::1").expect("a place");
        assert_eq!(of("2001:db8::ffff:2").err(), Some(NoPlace::Address));
        let _other = of("2001:db8:0:1::1").expect("a place");
    }
}
