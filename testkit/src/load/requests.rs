//! Requests of a load, rendered beforehand.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::distr::{Distribution, weighted::WeightedIndex};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// How many items are drawn beforehand. Then the draws begin again.
const DRAWS: usize = 1 << 20;
/// The most batches that are rendered.
const BATCHES: usize = 1 << 10;
/// One request of this many changes an earlier vote.
const CHANGE_EVERY: u64 = 5;
/// About how many requests lie between a vote and its change.
/// The vote's answer must have arrived by then.
/// A multiple of [`CHANGE_EVERY`], so that no vote is changed twice.
const CHANGE_AFTER: u64 = 3_000;

/// Which items are voted on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Always the first item.
    Hot,
    /// Every item equally often.
    Uniform,
    /// The n-th item gets 1/n of the first item's votes (Zipf's law).
    Zipf,
    /// So many votes of a hundred go to the items behind the first `warm`, all alike, the others to these, all alike.
    /// With far more items than votes, an item behind gets one vote: it is cold.
    PartlyCold { warm: usize, percent: u32 },
}

/// What the requests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    Votes,
    NineReadsToAVote,
    Reads,
    /// Reads, where every second one has the tag of its connection's last answer.
    /// It gets 304 while that holds.
    ReadsAgain,
    /// `GET /health/live`: what a request costs that does nothing.
    Live,
    /// Votes with voter ids.
    /// One request in [`CHANGE_EVERY`] changes an earlier vote to −1.
    Changes,
    /// Each request moves a voter's vote to the next choice of poll 1.
    /// The choices are the items. See [`choice_of`].
    PollMoves {
        voters: u64,
    },
    /// Each request casts this many votes.
    Batches {
        votes: usize,
    },
    /// Voters take turns, each with a credential: see [`Requests::with_credentials`].
    Credentialed,
}

/// Credentials for the requests of voters.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// For each voter, header lines, each with its line break.
    pub heads: Vec<String>,
    /// The first voter's number, if bodies name voters: `voter-<number in 16 digits>`.
    pub first_voter: Option<u64>,
}

/// Which choice, 0 to `choices` − 1, a voter holds in poll 1 after these moves.
pub fn choice_of(voter: u64, moves: u64, choices: u64) -> u64 {
    (voter + moves) % choices
}

/// The requests, rendered.
pub struct Requests {
    /// A vote for each item, as in `reads` and `changes`. Empty if the mix has none.
    votes: Vec<Text>,
    reads: Vec<Text>,
    /// Changes of votes, or moves to a choice.
    changes: Vec<Text>,
    batches: Vec<Text>,
    live: Text,
    credentials: Option<(Credentials, AtomicU64)>,
    /// Items in the order in which they are used.
    draws: Vec<u32>,
    mix: Mix,
}

/// A request as it is sent.
pub struct Request<'a> {
    pub text: &'a [u8],
    /// How many votes it casts, changes or moves; 0: it reads.
    pub votes: u64,
    /// How many rows of the ledger that is.
    /// A change or a move takes one vote back and casts one.
    pub rows: u64,
    /// Whether it is sent with the tag of its connection's last answer.
    pub has_tag: bool,
}

/// How many digits a voter id ends with.
const VOTER_DIGITS: usize = 16;

/// A request's text, and where its voter's digits are, if it has a voter.
struct Text {
    bytes: Vec<u8>,
    digits_at: Option<usize>,
}

impl Text {
    /// `#` stands for the voter's digits.
    fn new(text: &str) -> Self {
        Self {
            bytes: text.replace('#', &"0".repeat(VOTER_DIGITS)).into_bytes(),
            digits_at: text.find('#'),
        }
    }

    /// The text with these digits, built in `scratch`.
    fn of<'a>(&'a self, scratch: &'a mut Vec<u8>, digits: impl Fn(&mut [u8; VOTER_DIGITS])) -> &'a [u8] {
        let Some(at) = self.digits_at else {
            return &self.bytes;
        };
        scratch.clear();
        scratch.extend_from_slice(&self.bytes);
        if let Some(place) = scratch[at..].first_chunk_mut() {
            digits(place);
        }
        scratch
    }
}

/// Digits that scatter voters over the index, as real ids are.
fn scattered(voter: u64) -> impl Fn(&mut [u8; VOTER_DIGITS]) {
    let voter = voter.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    move |place| {
        for (at, digit) in place.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(voter >> (4 * at) & 15) as usize];
        }
    }
}

/// The digits of the decimal number.
fn decimal(voter: u64) -> impl Fn(&mut [u8; VOTER_DIGITS]) {
    move |place| {
        let mut rest = voter;
        for digit in place.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
}

/// A request with a JSON body.
fn with_body(method: &str, path: &str, body: &str) -> Text {
    // The digits are longer than the mark that they replace.
    let length = body.len() + body.matches('#').count() * (VOTER_DIGITS - 1);
    Text::new(&format!(
        "{method} {path} HTTP/1.1\r\nhost: tally\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    ))
}

impl Requests {
    /// Renders the requests for the items 1 to `items`.
    pub fn render(items: usize, spread: Spread, mix: Mix, voter_ids: bool) -> Self {
        let used = if spread == Spread::Hot { 1 } else { items };
        // The same draws in every run, for every system.
        let mut random = SmallRng::seed_from_u64(1);
        let draws: Vec<u32> = match spread {
            Spread::Hot => vec![0],
            Spread::Uniform => (0..DRAWS).map(|_| random.random_range(0..number(used))).collect(),
            Spread::PartlyCold { warm, percent } => {
                let (warm, used) = (number(warm), number(used));
                let mut draw = || match random.random_range(0..100) < percent {
                    true => random.random_range(warm..used),
                    false => random.random_range(0..warm),
                };
                (0..DRAWS).map(|_| draw()).collect()
            }
            Spread::Zipf => {
                let weights = WeightedIndex::new((1..=used).map(|rank| 1.0 / rank as f64)).expect("weights");
                (0..DRAWS).map(|_| number(weights.sample(&mut random))).collect()
            }
        };
        let each = |of: bool, items: usize, text: &dyn Fn(usize) -> Text| -> Vec<Text> {
            (1..=items).filter(|_| of).map(text).collect()
        };
        let vote = |item| {
            let body = if voter_ids || mix == Mix::Changes {
                r##"{"voter_id":"voter-#"}"##
            } else {
                "{}"
            };
            with_body("POST", &format!("/v1/items/{item}/votes"), body)
        };
        let read = |item| Text::new(&format!("GET /v1/items/{item} HTTP/1.1\r\nhost: tally\r\n\r\n"));
        let change = |item| {
            with_body(
                "PUT",
                &format!("/v1/items/{item}/votes/voter-#"),
                r#"{"value":-1}"#,
            )
        };
        let moved = |item| {
            with_body(
                "PUT",
                "/v1/polls/1/votes/voter-#",
                &format!(r#"{{"items":[{item}]}}"#),
            )
        };
        let has_votes = matches!(mix, Mix::Votes | Mix::NineReadsToAVote | Mix::Changes);
        let has_reads = matches!(mix, Mix::NineReadsToAVote | Mix::Reads | Mix::ReadsAgain);
        Self {
            votes: each(has_votes, used, &vote),
            reads: each(has_reads, used, &read),
            changes: match mix {
                Mix::PollMoves { .. } => each(true, items, &moved),
                _ => each(mix == Mix::Changes, used, &change),
            },
            batches: match mix {
                Mix::Batches { votes } => batches(&draws, votes),
                _ => Vec::new(),
            },
            live: Text::new("GET /health/live HTTP/1.1\r\nhost: tally\r\n\r\n"),
            credentials: None,
            draws,
            mix,
        }
    }

    /// Renders votes of voters who take turns.
    /// Each votes on the items 1 to `items` in order. Later loads go on where the load before them
    /// stopped.
    pub fn with_credentials(items: usize, credentials: Credentials) -> Self {
        Self {
            votes: Vec::new(),
            reads: Vec::new(),
            changes: Vec::new(),
            batches: Vec::new(),
            live: Text::new(""),
            credentials: Some((credentials, AtomicU64::new(0))),
            draws: (0..number(items)).collect(),
            mix: Mix::Credentialed,
        }
    }

    /// Whether some requests have the tag of an earlier answer.
    pub(super) fn use_tags(&self) -> bool {
        self.mix == Mix::ReadsAgain
    }

    /// The request with this number, which counts up from 0.
    /// A request with a voter id is built in `scratch`. `first_voter` differs from load to load.
    pub fn nth<'a>(&'a self, number: u64, first_voter: u64, scratch: &'a mut Vec<u8>) -> Request<'a> {
        let vote = |scratch: &'a mut Vec<u8>| Request {
            text: self.votes[self.item(number)].of(scratch, scattered(first_voter + number)),
            votes: 1,
            rows: 1,
            has_tag: false,
        };
        let read = |has_tag| Request {
            text: &self.reads[self.item(number)].bytes,
            votes: 0,
            rows: 0,
            has_tag,
        };
        match self.mix {
            Mix::Votes => vote(scratch),
            Mix::NineReadsToAVote if number.is_multiple_of(10) => vote(scratch),
            Mix::ReadsAgain => read(number % 2 == 1),
            Mix::NineReadsToAVote | Mix::Reads => read(false),
            Mix::Live => Request {
                text: &self.live.bytes,
                votes: 0,
                rows: 0,
                has_tag: false,
            },
            Mix::Changes => {
                let Some(earlier) = changed(number) else {
                    return vote(scratch);
                };
                Request {
                    text: self.changes[self.item(earlier)].of(scratch, scattered(first_voter + earlier)),
                    votes: 1,
                    rows: 2,
                    has_tag: false,
                }
            }
            Mix::PollMoves { voters } => {
                let voter = number % voters;
                let choice = choice_of(voter, 1 + number / voters, self.changes.len() as u64);
                Request {
                    text: self.changes[choice as usize].of(scratch, decimal(voter)),
                    votes: 1,
                    rows: 2,
                    has_tag: false,
                }
            }
            Mix::Credentialed => {
                if let Some((credentials, next)) = &self.credentials {
                    self.credentialed(credentials, next.fetch_add(1, Ordering::Relaxed), scratch);
                }
                Request {
                    text: scratch,
                    votes: 1,
                    rows: 1,
                    has_tag: false,
                }
            }
            Mix::Batches { votes } => Request {
                text: &self.batches[(number % self.batches.len() as u64) as usize].bytes,
                votes: votes as u64,
                rows: votes as u64,
                has_tag: false,
            },
        }
    }

    fn credentialed(&self, credentials: &Credentials, number: u64, scratch: &mut Vec<u8>) {
        let voters = credentials.heads.len() as u64;
        let voter = number % voters;
        let item = self.item(number / voters) + 1;
        let head = &credentials.heads[voter as usize];
        let body = match credentials.first_voter {
            Some(first) => format!(r#"{{"voter_id":"voter-{:016}"}}"#, first + voter),
            None => "{}".to_owned(),
        };
        scratch.clear();
        // Writing to memory does not fail.
        let _ = write!(
            scratch,
            "POST /v1/items/{item}/votes HTTP/1.1\r\nhost: tally\r\n{head}content-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
    }

    fn item(&self, number: u64) -> usize {
        self.draws[(number % self.draws.len() as u64) as usize] as usize
    }
}

/// Which vote the request with this number changes.
fn changed(number: u64) -> Option<u64> {
    let changes = number % CHANGE_EVERY == CHANGE_EVERY - 1;
    // The request right before the change casts a vote.
    number.checked_sub(CHANGE_AFTER + 1).filter(|_| changes)
}

/// Batches of anonymous votes.
fn batches(draws: &[u32], votes: usize) -> Vec<Text> {
    let number = if draws.len() == 1 { 1 } else { BATCHES };
    let mut draws = draws.iter().cycle();
    let mut batch = || {
        let votes = draws.by_ref().take(votes);
        let votes: Vec<String> = votes
            .map(|item| format!(r#"{{"item_id":{}}}"#, item + 1))
            .collect();
        with_body(
            "POST",
            "/v1/votes",
            &format!(r#"{{"votes":[{}]}}"#, votes.join(",")),
        )
    };
    (0..number).map(|_| batch()).collect()
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("fewer items")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    /// Method, path and body of a request.
    fn parts(request: &Request<'_>) -> (String, String, String) {
        let text = String::from_utf8(request.text.to_vec()).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let mut line = head.split(' ');
        let (method, path) = (line.next().expect("a method"), line.next().expect("a path"));
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().expect("a number"));
        assert_eq!(length, body.len(), "{text}");
        (method.to_owned(), path.to_owned(), body.to_owned())
    }

    #[test]
    fn one_request_in_five_changes_a_vote_that_was_cast_long_before_and_none_is_changed_twice() {
        let requests = Requests::render(100, Spread::Uniform, Mix::Changes, false);
        let (mut scratch, mut cast, mut changed) = (Vec::new(), HashMap::new(), HashSet::new());
        let (mut votes, mut rows) = (0, 0);
        for number in 0..20_000 {
            let request = requests.nth(number, 7 << 40, &mut scratch);
            votes += request.votes;
            rows += request.rows;
            let (method, path, body) = parts(&request);
            if method == "PUT" {
                let cast_at: &u64 = cast.get(&path).expect("a vote that was cast");
                assert!(
                    number - cast_at > CHANGE_AFTER && changed.insert(path),
                    "{number}"
                );
                assert_eq!(body, r#"{"value":-1}"#);
            } else {
                let voter = body.split('"').nth(3).expect("a voter");
                assert!(
                    cast.insert(format!("{path}/{voter}"), number).is_none(),
                    "{number}"
                );
            }
        }
        assert_eq!(votes, 20_000);
        assert_eq!(
            (rows - votes, changed.len()),
            (3_400, 3_400),
            "a fifth of those after the first"
        );
    }

    #[test]
    fn each_move_is_to_another_choice_and_choice_of_says_which() {
        let requests = Requests::render(3, Spread::Hot, Mix::PollMoves { voters: 7 }, false);
        let mut scratch = Vec::new();
        let mut held: HashMap<String, u64> = HashMap::new();
        for voter in 0..7 {
            let path = format!("/v1/polls/1/votes/voter-{voter:016}");
            held.insert(path, choice_of(voter, 0, 3));
        }
        let number = 40;
        for at in 0..number {
            let request = requests.nth(at, 0, &mut scratch);
            assert_eq!((request.votes, request.rows), (1, 2));
            let (method, path, body) = parts(&request);
            let choice: u64 = body
                .trim_matches(|one: char| !one.is_ascii_digit())
                .parse()
                .expect("an item");
            let before = held.insert(path, choice - 1);
            assert!(
                method == "PUT" && before.is_some_and(|before| before != choice - 1),
                "{at}"
            );
        }
        for voter in 0..7 {
            let moves = number / 7 + u64::from(voter < number % 7);
            let path = format!("/v1/polls/1/votes/voter-{voter:016}");
            assert_eq!(held[&path], choice_of(voter, moves, 3));
        }
    }

    #[test]
    fn voters_take_turns_and_none_votes_on_an_item_twice() {
        for first_voter in [Some(7), None] {
            let heads = (0..3).map(|voter| format!("cookie: {voter}\r\n"));
            let credentials = Credentials {
                heads: heads.collect(),
                first_voter,
            };
            let requests = Requests::with_credentials(5, credentials);
            let (mut scratch, mut seen) = (Vec::new(), HashSet::new());
            // Two loads, whose numbers begin at 0.
            for (number, of_load) in (0..10).chain(0..5).enumerate() {
                let request = requests.nth(of_load, 7 << 40, &mut scratch);
                let (_, path, body) = parts(&request);
                let text = String::from_utf8(request.text.to_vec()).expect("UTF-8");
                let cookie = format!("cookie: {}", number % 3);
                assert!(text.contains(&cookie), "{text}");
                assert_eq!(body.contains("voter_id"), first_voter.is_some());
                assert!(seen.insert((path, cookie)), "{number}");
            }
        }
    }

    #[test]
    fn of_votes_that_are_partly_cold_so_many_go_behind_the_warm_items() {
        for percent in [0, 25, 100] {
            let spread = Spread::PartlyCold { warm: 10, percent };
            let requests = Requests::render(1000, spread, Mix::Votes, false);
            let mut scratch = Vec::new();
            let is_cold = |number| {
                let (_, path, _) = parts(&requests.nth(number, 0, &mut scratch));
                let item = path.split('/').nth(3).expect("an item");
                item.parse::<u32>().expect("a number") > 10
            };
            let cold = (0..10_000).map(is_cold).filter(|is_cold| *is_cold).count() as u32;
            assert!(cold.abs_diff(percent * 100) < 200, "{percent}: {cold}");
        }
    }

    #[test]
    fn a_batch_has_as_many_votes_as_it_says() {
        let requests = Requests::render(50, Spread::Uniform, Mix::Batches { votes: 100 }, false);
        let (mut scratch, mut items) = (Vec::new(), HashSet::new());
        for number in 0..20 {
            let request = requests.nth(number, 0, &mut scratch);
            assert_eq!((request.votes, request.rows), (100, 100));
            let (method, path, body) = parts(&request);
            assert_eq!((method.as_str(), path.as_str()), ("POST", "/v1/votes"));
            let votes = body.matches(r#"{"item_id":"#).count();
            assert_eq!(votes, 100);
            items.extend(body.split(|one: char| !one.is_ascii_digit()).map(str::to_owned));
        }
        assert_eq!(items.len(), 51, "all items, and the empty text between them");
    }
}
