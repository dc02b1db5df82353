//! Judges the votes by key: each row is on the item whose key its client named, and each acknowledged vote is
//! there, but for those that went with a primary.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;

use super::{KeyedRecords, PREFIX};
use crate::check::Verdict;
use crate::stores::{AllLost, VoteRow};

impl KeyedRecords {
    /// Adds to a verdict what is wrong.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn judge(
        &self,
        lost: &AllLost,
        owner: &mut PgConnection,
        verdict: &mut Verdict,
    ) -> anyhow::Result<()> {
        for wrong in &self.wrong_answers {
            verdict.find(wrong.clone());
        }
        let rows: Vec<VoteRow> = sqlx::query_as(
            "select vote.id, item_id, key, voter_id, value from vote join item on item.id = item_id
             where starts_with(key, $1) or starts_with(voter_id, $1)",
        )
        .bind(PREFIX)
        .fetch_all(owner)
        .await?;
        self.judge_rows(&rows, verdict);
        self.judge_acknowledged(&rows, lost, verdict);
        Ok(())
    }

    /// Each row has its request.
    fn judge_rows(&self, rows: &[VoteRow], verdict: &mut Verdict) {
        let mut voters: HashMap<&str, (&str, i16)> = HashMap::new();
        let mut anonymous: HashMap<(&str, i16), u64> = HashMap::new();
        for cast in self.casts.iter().filter(|cast| cast.requests > 0) {
            match &cast.voter {
                Some(voter) => {
                    voters.insert(voter, (&cast.key, cast.value));
                }
                None => *anonymous.entry((&cast.key, cast.value)).or_default() += cast.requests,
            }
        }
        let mut seen = HashSet::new();
        let mut anonymous_rows: HashMap<(&str, i16), u64> = HashMap::new();
        for row in rows {
            let key = row.key.as_deref().unwrap_or_default();
            let Some(voter) = row.voter_id.as_deref() else {
                *anonymous_rows.entry((key, row.value)).or_default() += 1;
                continue;
            };
            match voters.get(voter) {
                Some((named, _)) if *named != key => {
                    verdict.misdirected += 1;
                    verdict.find(format!("its client named key {named}: {row:?}"));
                }
                Some((_, value)) if *value == row.value => {}
                _ => {
                    verdict.counted_twice += 1;
                    verdict.find(format!("no client asked for {row:?}"));
                }
            }
            if !seen.insert((row.item_id, voter)) {
                verdict.counted_twice += 1;
                verdict.find(format!("its voter has two rows: {row:?}"));
            }
        }
        for ((key, value), there) in anonymous_rows {
            let asked = anonymous.get(&(key, value)).copied().unwrap_or_default();
            if there > asked {
                // Whose they are cannot be known: others named another key.
                verdict.misdirected += there - asked;
                verdict.find(format!(
                    "{there} anonymous rows of {value} on key {key} for {asked} requests that named it"
                ));
            }
        }
    }

    /// Each acknowledged vote has its row, or went with a primary.
    fn judge_acknowledged(&self, rows: &[VoteRow], lost: &AllLost, verdict: &mut Verdict) {
        let rows: HashSet<&VoteRow> = rows.iter().collect();
        let mut taken = HashSet::new();
        for cast in &self.casts {
            verdict.acknowledged += u64::from(!cast.acknowledged.is_empty());
            // A vote that was acknowledged again as the same row is one vote.
            let mut own = HashSet::new();
            for one in &cast.acknowledged {
                let row = VoteRow {
                    id: one.vote,
                    item_id: one.item,
                    key: Some(cast.key.clone()),
                    voter_id: cast.voter.clone(),
                    value: cast.value,
                };
                let is_excused = lost.excuses(&row, one.began);
                // An anonymous row that looks the same may be another client's.
                if is_excused && (cast.voter.is_none() || !rows.contains(&row)) {
                    verdict.went_with_primary += 1;
                } else if rows.contains(&row) {
                    let is_new = own.insert(one.vote);
                    if is_new && !taken.insert(one.vote) || !is_new && cast.voter.is_none() {
                        verdict.lost += 1;
                        verdict.find(format!("two votes were acknowledged as one: {row:?}"));
                    }
                } else {
                    verdict.lost += 1;
                    verdict.find(format!("acknowledged, and not there: {row:?} of {cast:?}"));
                }
            }
        }
    }
}
