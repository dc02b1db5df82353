//! The requests of a load, rendered beforehand.

use rand::distr::{Distribution, weighted::WeightedIndex};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// How many items are drawn beforehand; they are then used again and again in this order.
const DRAWS: usize = 1 << 20;

/// Which items are voted on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Always the first.
    Hot,
    /// Every item equally often.
    Uniform,
    /// The n-th item n times less often than the first (Zipf's law).
    Zipf,
}

/// Which of the requests are votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    Votes,
    NineReadsToAVote,
    Reads,
}

/// The requests, rendered.
pub struct Requests {
    /// One for each item, as `reads`.
    votes: Vec<Vec<u8>>,
    reads: Vec<Vec<u8>>,
    /// Items in the order in which they are used.
    draws: Vec<u32>,
    mix: Mix,
    voter_ids: bool,
}

/// A request as it is sent.
pub struct Request<'a> {
    pub text: &'a [u8],
    pub is_vote: bool,
}

/// How many digits a voter id ends with.
const VOTER_DIGITS: usize = 16;

impl Requests {
    /// Renders the requests for the items 1 to `items`.
    pub fn render(items: usize, spread: Spread, mix: Mix, voter_ids: bool) -> Self {
        let used = if spread == Spread::Hot { 1 } else { items };
        // The same draws in every run, for every system.
        let mut random = SmallRng::seed_from_u64(1);
        let draws = match spread {
            Spread::Hot => vec![0],
            Spread::Uniform => (0..DRAWS).map(|_| random.random_range(0..number(used))).collect(),
            Spread::Zipf => {
                let weights = WeightedIndex::new((1..=used).map(|rank| 1.0 / rank as f64)).expect("weights");
                (0..DRAWS).map(|_| number(weights.sample(&mut random))).collect()
            }
        };
        let body = if voter_ids {
            format!(r#"{{"voter_id":"voter-{}"}}"#, "0".repeat(VOTER_DIGITS))
        } else {
            "{}".to_owned()
        };
        let vote = |item: usize| {
            format!(
                "POST /v1/items/{item}/votes HTTP/1.1\r\nhost: tally\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let read = |item: usize| format!("GET /v1/items/{item} HTTP/1.1\r\nhost: tally\r\n\r\n");
        Self {
            votes: (1..=used).map(|item| vote(item).into_bytes()).collect(),
            reads: (1..=used).map(|item| read(item).into_bytes()).collect(),
            draws,
            mix,
            voter_ids,
        }
    }

    /// The request with this number. A vote with a voter id is made in `scratch`; `voter`
    /// differs from call to call.
    pub fn nth<'a>(&'a self, number: u64, voter: u64, scratch: &'a mut Vec<u8>) -> Request<'a> {
        let item = self.draws[(number % self.draws.len() as u64) as usize] as usize;
        let is_vote = match self.mix {
            Mix::Votes => true,
            Mix::NineReadsToAVote => number.is_multiple_of(10),
            Mix::Reads => false,
        };
        let text = if !is_vote {
            &self.reads[item]
        } else if self.voter_ids {
            // Scattered over the index, as voters' ids are.
            let voter = voter.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            scratch.clear();
            scratch.extend_from_slice(&self.votes[item]);
            // The digits end two characters before the body does.
            let end = scratch.len() - 2;
            for (place, digit) in scratch[end - VOTER_DIGITS..end].iter_mut().enumerate() {
                *digit = b"0123456789abcdef"[(voter >> (4 * place) & 15) as usize];
            }
            scratch
        } else {
            &self.votes[item]
        };
        Request { text, is_vote }
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("fewer items")
}
