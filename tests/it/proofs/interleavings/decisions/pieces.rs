//! The pieces that can be taken away, each with what it takes to miss it.

use crate::proofs::interleavings::pieces::cut;

/// A piece of how decisions are stored and counted. Without any one of them, but nothing, the
/// search must find a violation. What only shows between two steps of one statement is taken
/// away in `model/rules`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    Nothing,
    /// Nobody asks for a place.
    LimitOfVotes,
    /// The same, where a batch has nothing but first votes.
    LimitOfFirstVotes,
    /// First votes take no place.
    PlacesOfFirstVotes,
    /// A number is left out after a batch of first votes.
    NumbersOfFirstVotes,
    /// Nobody asks whether a voter has voted before.
    FirstVotes,
    /// A vote that is taken back keeps its place.
    PlaceGivenBack,
    /// A number is left out for each that is given.
    NumbersWithoutAGap,
    /// Another choice of a one-choice poll is one more.
    MoveOfAVote,
    /// A selection takes nothing back.
    WholeSelections,
    /// A voter's second request in a batch is decided by the same look as the first.
    TurnsOfAVoter,
    /// Rows that take votes back are counted twice.
    TakingBackCountedOnce,
    /// Of what a batch adds only the sum is counted.
    DownVotesOfADelta,
    /// Every batch is added to the live count, also one that the seed has seen.
    VisibilitySnapshot,
    /// What a crashed writer left is never counted.
    CrashedWriterRecovery,
}

impl Without {
    /// Those that take something away.
    pub(super) const PIECES: [Self; 14] = [
        Self::LimitOfVotes,
        Self::LimitOfFirstVotes,
        Self::PlacesOfFirstVotes,
        Self::NumbersOfFirstVotes,
        Self::FirstVotes,
        Self::PlaceGivenBack,
        Self::NumbersWithoutAGap,
        Self::MoveOfAVote,
        Self::WholeSelections,
        Self::TurnsOfAVoter,
        Self::TakingBackCountedOnce,
        Self::DownVotesOfADelta,
        Self::VisibilitySnapshot,
        Self::CrashedWriterRecovery,
    ];

    /// The functions `cast_votes` and `decide_votes`, which replace those that are there.
    pub(super) fn cast_votes(self) -> String {
        let first = include_str!("../../../../../migrations/functions/cast_votes.sql");
        let decide = include_str!("../../../../../migrations/functions/decide_votes.sql");
        let (part, instead) = match self {
            Self::LimitOfVotes => ("why := 'full';", "null;"),
            Self::PlaceGivenBack => (
                "sum(1 - 2 * (entry.change_number % 2)) as taken",
                "count(*) filter (where entry.change_number % 2 = 0) as taken",
            ),
            Self::NumbersWithoutAGap => (
                "numbers[at] := numbers[at] + 1;",
                "numbers[at] := numbers[at] + 2;",
            ),
            Self::MoveOfAVote => (" or rule.max_choices = 1 and line.value <> 0", ""),
            Self::WholeSelections => ("bool_or(line.whole or ", "bool_or("),
            Self::TurnsOfAVoter => ("when given.turn > 1 then 'again'", ""),
            Self::LimitOfFirstVotes => ("line.free is null or line.turn <= line.free", "true"),
            Self::PlacesOfFirstVotes => ("set taken = place.taken + given.votes", "set taken = place.taken"),
            Self::NumbersOfFirstVotes => ("then given.votes else 0 end", "then given.votes + 1 else 0 end"),
            Self::FirstVotes => ("and past.held_before is null", ""),
            Self::Nothing
            | Self::TakingBackCountedOnce
            | Self::DownVotesOfADelta
            | Self::VisibilitySnapshot
            | Self::CrashedWriterRecovery => return first.to_owned() + decide,
        };
        match self {
            Self::LimitOfFirstVotes
            | Self::PlacesOfFirstVotes
            | Self::NumbersOfFirstVotes
            | Self::FirstVotes => cut(first, part, instead) + decide,
            _ => first.to_owned() + &cut(decide, part, instead),
        }
    }
}
