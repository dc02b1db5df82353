//! The no-op baseline: the same server parses and answers the same, and stores nothing.

use tally::domain::{Item, ItemId, NewVote, StoredVote, VoteId};
use tally::votes::Cast;

use super::VoteStore;

#[derive(Clone)]
pub struct NoOp;

// Numbers as long as those of a running system, so that the answers are too.
const VOTE_ID: i64 = 1_234_567;
const COUNT: i64 = 123_456;

impl VoteStore for NoOp {
    async fn cast(&self, vote: NewVote) -> anyhow::Result<Cast> {
        Ok(Cast::Accepted {
            vote: StoredVote {
                number: None,
                id: VoteId::new(VOTE_ID),
                value: vote.value.get(),
            },
            count: Some(COUNT.into()),
        })
    }

    async fn item(&self, id: ItemId) -> anyhow::Result<(Item, Option<i64>)> {
        let item = Item {
            rules: None,
            key: None,
            is_hidden: false,
            id,
            name: "item".into(),
            saved_count: COUNT.into(),
            counted_at: None,
        };
        Ok((item, Some(COUNT)))
    }
}
