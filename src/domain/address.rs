//! Client addresses: what counts as one client, and what may be kept about it.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use super::SecretKeys;

/// The bits of an IPv6 address that are ignored. A household or a server usually has such a network
/// to itself, and may use any address in it.
const IPV6_HOST_BITS: u32 = 64;
/// The prefix of what is hashed. It keeps a key that also signs something else from making a hash.
const CONTEXT: &[u8] = b"tally client address 1\n";

/// What counts as one client: an IPv4 address, or an IPv6 network of 64 bits.
pub fn client_network(address: IpAddr) -> Ipv6Addr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> IPV6_HOST_BITS << IPV6_HOST_BITS),
    }
}

/// What is kept about a vote's client: 128 bits of a keyed hash of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressHash([u8; Self::BYTES]);

impl AddressHash {
    /// migrations/0002_votes.sql has the same length.
    const BYTES: usize = 16;

    /// From the ledger's bytes; `None`: they are no hash.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The keys that hash client addresses. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AddressKeys(SecretKeys);

/// Reads keys as [`SecretKeys`] does. The first key hashes what is kept; a search for votes uses
/// all.
impl FromStr for AddressKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

impl AddressKeys {
    /// The hash to keep for this client.
    pub fn hash(&self, address: IpAddr) -> Option<AddressHash> {
        self.hashes(address).next()
    }

    /// The hashes that may have been kept: one by each key, the first key's first.
    pub fn hashes(&self, address: IpAddr) -> impl Iterator<Item = AddressHash> {
        let text = [CONTEXT, &client_network(address).octets()].concat();
        let tags: Vec<_> = self.0.signatures(&text).collect();
        tags.into_iter()
            .filter_map(|tag| AddressHash::from_bytes(tag.as_ref().get(..AddressHash::BYTES)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn keys(digits: &[char]) -> AddressKeys {
        let keys: Vec<String> = digits.iter().map(|digit| digit.to_string().repeat(64)).collect();
        keys.join(",").parse().expect("keys")
    }

    #[test]
    fn an_ipv4_address_is_one_client_however_it_is_written_and_an_ipv6_network_is_one() {
        let network = |text| client_network(address(text));
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("2001:db8:0:1::1"), network("2001:db8:0:1:ffff::9"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8:0:2::1"));
    }

    #[test]
    fn a_hash_is_of_the_client_and_of_the_key() {
        let (one, other) = (keys(&['a']), keys(&['b']));
        let client = address("192.0.2.1");
        assert_eq!(one.hash(client), one.hash(address("::ffff:192.0.2.1")));
        assert_ne!(one.hash(client), one.hash(address("192.0.2.2")));
        assert_ne!(one.hash(client), other.hash(client));
    }

    #[test]
    fn after_a_rotation_a_client_is_found_by_each_of_its_hashes() {
        let client = address("192.0.2.1");
        let hashes: Vec<AddressHash> = keys(&['b', 'a']).hashes(client).collect();
        let of_each = ['b', 'a'].map(|digit| keys(&[digit]).hash(client).expect("a hash"));
        assert_eq!(hashes, of_each);
        assert_eq!(keys(&['b', 'a']).hash(client), Some(of_each[0]));
    }
}
