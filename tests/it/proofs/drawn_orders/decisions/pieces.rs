//! Pieces that can be taken away, each with what happens without it.

use crate::proofs::drawn_orders::pieces::cut;

/// A piece of how decisions are stored and counted.
/// Without any one of them the search must find a violation, and with all of them none.
/// `model/rules` takes away what only shows between two steps of one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    Nothing,
    /// A statement stores a vote without a free place.
    LimitOfVotes,
    /// The same, in a batch of first votes only.
    LimitOfFirstVotes,
    /// First votes take no place.
    PlacesOfFirstVotes,
    /// A batch of first votes leaves a number out.
    NumbersOfFirstVotes,
    /// A statement stores a first vote of a voter who has voted before.
    FirstVotes,
    /// A vote that is taken back keeps its place.
    PlaceGivenBack,
    /// A number is left out for each number that is given.
    NumbersWithoutAGap,
    /// A vote on another choice of a one-choice poll does not replace the first.
    MoveOfAVote,
    /// A selection takes nothing back.
    WholeSelections,
    /// A voter's second request in a batch is decided by the same look as the first.
    TurnsOfAVoter,
    /// Rows that take votes back are counted twice.
    TakingBackCountedOnce,
    /// Of a batch's delta, only the sum is counted.
    DownVotesOfADelta,
    /// Every batch is added to the live count, also a batch that the seed has seen.
    VisibilitySnapshot,
    /// What a crashed writer left is never counted.
    CrashedWriterRecovery,
}

impl Without {
    /// All pieces that can be taken away.
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

    /// The functions `cast_votes` and `decide_votes` without the piece.
    /// They replace the real ones.
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
