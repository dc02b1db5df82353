//! Rules: what an item may require of its votes, besides one vote a voter.

use super::{Moment, PollId};

/// What an item requires of its votes. The default requires nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRules {
    pub takes_down_votes: bool,
    /// How many votes the item holds at most; `None`: any number.
    pub max_votes: Option<i64>,
    /// Whether votes get the numbers 1, 2, 3 and so on.
    pub is_numbered: bool,
    /// The item takes votes from this time on.
    pub opens_at: Option<Moment>,
    /// The item takes votes until this time.
    pub closes_at: Option<Moment>,
    /// Whether each vote takes a ballot.
    pub by_ballot: bool,
    /// The poll whose choice the item is.
    pub poll: Option<PollId>,
    /// Whether only the poll shows the count, once it has closed.
    pub hides_count: bool,
}

impl Default for ItemRules {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl ItemRules {
    /// The rules that require nothing.
    pub const DEFAULT: Self = Self {
        takes_down_votes: true,
        max_votes: None,
        is_numbered: false,
        opens_at: None,
        closes_at: None,
        by_ballot: false,
        poll: None,
        hides_count: false,
    };

    /// Whether votes on the item are decided one by one. An item that only refuses down-votes needs
    /// no decisions: each vote itself says whether it is one.
    pub fn need_decisions(&self) -> bool {
        let Self {
            takes_down_votes: _,
            max_votes,
            is_numbered,
            opens_at,
            closes_at,
            by_ballot,
            poll,
            hides_count: _,
        } = self;
        max_votes.is_some()
            || *is_numbered
            || opens_at.is_some()
            || closes_at.is_some()
            || *by_ballot
            || poll.is_some()
    }
}

/// Why a rule does not take a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The item holds as many votes as it takes.
    Full,
    NotOpenYet,
    Closed,
    /// The voter would hold more choices of the poll than one voter may.
    TooManyChoices,
    /// The voter has changed this vote too often.
    TooManyChanges,
    /// The item takes no down-votes.
    NoDownVotes,
    /// The item is no choice of this poll.
    NotInPoll,
    /// A poll needs to know who votes.
    NoVoter,
    /// The item takes votes with a ballot only.
    NoBallot,
    /// The ballot is unknown, spent, expired, or of another rule.
    BallotNotValid,
    /// The item takes no ballots.
    BallotUnwanted,
    /// A vote with a ballot has no voter.
    VoterUnwanted,
    /// The idempotency key was used with another body.
    KeyReused,
    /// A secret vote takes no idempotency key, which would be kept beside it.
    KeyUnwanted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_are_decided_under_every_rule_but_those_that_each_vote_shows_by_itself() {
        let rules = ItemRules::DEFAULT;
        let time = Some(Moment::from_micros(1));
        for needing in [
            ItemRules {
                max_votes: Some(1),
                ..rules.clone()
            },
            ItemRules {
                is_numbered: true,
                ..rules.clone()
            },
            ItemRules {
                opens_at: time,
                ..rules.clone()
            },
            ItemRules {
                closes_at: time,
                ..rules.clone()
            },
            ItemRules {
                by_ballot: true,
                ..rules.clone()
            },
            ItemRules {
                poll: PollId::new(1),
                ..rules.clone()
            },
        ] {
            assert!(needing.need_decisions(), "{needing:?}");
        }
        let none = ItemRules {
            takes_down_votes: false,
            hides_count: true,
            ..rules.clone()
        };
        assert!(!rules.need_decisions() && !none.need_decisions());
    }
}
