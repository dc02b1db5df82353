//! Whether the counts are in this server's Redis, as the workers see it.

use futures_util::future::join_all;

use super::LiveCounts;
use super::live_counts::FailedCall;
use crate::live::LiveError;
use crate::live::any_connection::AnyConnection;
use crate::live::buckets::Bucket;

/// Where the counts are, seen from a Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Here,
    /// A worker has entered another Redis since, or later data of this one.
    Elsewhere,
    /// Kept connections lead to a Redis that workers have left, and new ones to theirs: a proxy or a name has changed.
    Behind,
    /// A worker is entering an epoch in this Redis. Its counts are the workers', but may still be wrong.
    Entering,
    /// The last worker that began to enter an epoch did so in another Redis, or has lost its mark in this one.
    EnteringElsewhere,
    /// This Redis has lost its data, or no worker has ever come to it.
    Empty,
    /// Redis does not answer, or a bucket moves or fails over.
    Unknown,
}

impl LiveCounts {
    /// How many buckets Redis has.
    pub fn bucket_count(&self) -> i16 {
        self.redis().bucket_count()
    }

    /// Where the counts of each bucket are, if these are the last entries of buckets (by their place) into an epoch that
    /// workers have noted in Postgres: see `sync::epoch`. A bucket without one was entered nowhere, or, if `are_of_another`,
    /// in another kind of Redis. A Redis that does not answer says nothing; if it answered before, the circuit breaker opens.
    pub async fn places(&self, entries: &[(i16, String)], are_of_another: bool) -> Vec<(Bucket, Place)> {
        let looks = self.redis().buckets().filter_map(|bucket| {
            let of_bucket = entries.iter().find(|(of, _)| *of == bucket.place());
            // No epoch has this name.
            let no_entry = (entries.is_empty() && are_of_another).then_some("");
            let entry = of_bucket.map(|(_, entry)| entry.as_str()).or(no_entry)?;
            Some(async move {
                let place = self.place_of(bucket, entry).await;
                (bucket, place.unwrap_or(Place::Unknown))
            })
        });
        join_all(looks).await
    }

    /// Takes counts out of use that a look did not find here, and into use again that it did.
    ///
    /// Counts that workers keep elsewhere lack the votes of others here: a cut-off server has not heard yet that another
    /// Redis was promoted, or is set to a wrong one.
    pub fn note_places(&self, places: &[(Bucket, Place)]) {
        for (bucket, place) in places {
            let part = self.state.part(*bucket);
            match place {
                Place::Here => {
                    if part.place.found_here() {
                        part.wake_repair.notify_one();
                    }
                }
                Place::Elsewhere => {
                    // Before the circuit breaker opens: the repair task closes it only if they are not elsewhere.
                    if part.place.found_elsewhere()
                        && let Some(generation) = part.breaker.generation()
                    {
                        part.breaker.open(generation, &LiveError::CountedElsewhere);
                    }
                }
                Place::Behind => {
                    part.place.found_here();
                    self.redis().renew_pool();
                    if let Some(generation) = part.breaker.generation() {
                        part.breaker.open(generation, &LiveError::PrimaryMoved);
                    }
                    part.wake_repair.notify_one();
                }
                Place::Entering | Place::EnteringElsewhere | Place::Empty | Place::Unknown => {
                    part.place.found_nothing();
                }
            }
        }
    }

    async fn place_of(&self, bucket: Bucket, entry: &str) -> Result<Place, LiveError> {
        let part = self.state.part(bucket);
        let redis = self.redis();
        if part.breaker.generation().is_none() {
            if part.breaker.refusal().is_none() && !part.place.is_elsewhere() {
                // The repair task tries already. Until Redis answers it, no count is shown, and no vote is counted.
                return Ok(Place::Unknown);
            }
            // A connection that is kept may lead to a Redis that workers have left.
            let mut connection = match part.place.is_elsewhere() {
                true => redis.connect(bucket).await?,
                false => redis.get(bucket).await?,
            };
            return self.seen_place(bucket, entry, &mut connection).await;
        }
        let Some((generation, kept)) = part.first() else {
            let mut connection = redis.get(bucket).await?;
            return self.seen_place(bucket, entry, &mut connection).await;
        };
        // It is older than all that votes are counted over: if one of these leads to an old Redis, it does, too.
        let place = match self
            .seen_place(bucket, entry, &mut AnyConnection::Own(kept))
            .await
        {
            Ok(place) => place,
            Err(error) if error.is_cut() => {
                let generation = Some(generation);
                return Err(self.open_breaker(bucket, FailedCall { generation, error }));
            }
            // Someone else has written the key, or Redis refuses it: votes find out themselves.
            Err(error) => return Err(error),
        };
        if place == Place::Elsewhere {
            // A proxy or a name may lead to another Redis by now, and only kept connections to the one from before.
            let over_fresh = async {
                let mut fresh = redis.connect(bucket).await?;
                self.seen_place(bucket, entry, &mut fresh).await
            };
            if over_fresh.await.is_ok_and(Place::is_here) {
                return Ok(Place::Behind);
            }
        }
        Ok(place)
    }

    /// Where the counts are, over this connection.
    async fn seen_place(
        &self,
        bucket: Bucket,
        entry: &str,
        connection: &mut AnyConnection,
    ) -> Result<Place, LiveError> {
        let redis = self.redis();
        // While a worker is entering an epoch, the mark that it made in its Redis.
        let is_mark = entry.starts_with(&redis.keys().entering(bucket, ""));
        let key = if is_mark {
            entry.to_owned()
        } else {
            redis.keys().epoch(bucket)
        };
        let found: Option<String> = redis::cmd("GET").arg(key).query_async(connection).await?;
        // After the answer: it may be the first one of a new primary, while the threads still count in the old one.
        if self.state.part(bucket).has_moved(redis.number(bucket).await?) {
            return Ok(Place::Unknown);
        }
        Ok(match found {
            Some(_) if is_mark => Place::Entering,
            Some(known) if known == entry => Place::Here,
            Some(_) => Place::Elsewhere,
            None if is_mark => Place::EnteringElsewhere,
            None => Place::Empty,
        })
    }
}

impl Place {
    /// Whether this Redis, or the one that kept connections lead to, is none of the workers'.
    pub fn is_left(self) -> bool {
        matches!(self, Self::Elsewhere | Self::Behind)
    }

    /// Whether the counts are those of the workers: here, also while a worker enters an epoch here.
    pub fn is_here(self) -> bool {
        matches!(self, Self::Here | Self::Entering)
    }

    /// Where the counts of all buckets are. Elsewhere, if those of one are.
    pub fn of_all(places: &[(Bucket, Self)]) -> Self {
        let are_all = |wanted: Self| places.iter().all(|(_, place)| *place == wanted);
        match () {
            () if places.iter().any(|(_, place)| place.is_left()) => Self::Elsewhere,
            () if places.iter().all(|(_, place)| place.is_here()) => Self::Here,
            () if are_all(Self::Empty) => Self::Empty,
            () if are_all(Self::EnteringElsewhere) => Self::EnteringElsewhere,
            () => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bucket_elsewhere_is_enough_and_here_and_empty_take_all() {
        let of = |places: &[Place]| {
            let places: Vec<_> = Bucket::first(3).zip(places.iter().copied()).collect();
            Place::of_all(&places)
        };
        assert_eq!(
            of(&[Place::Here, Place::Elsewhere, Place::Unknown]),
            Place::Elsewhere
        );
        assert_eq!(of(&[Place::Here, Place::Behind]), Place::Elsewhere);
        assert_eq!(of(&[Place::Here, Place::Entering]), Place::Here);
        assert_eq!(of(&[Place::EnteringElsewhere]), Place::EnteringElsewhere);
        assert_eq!(of(&[Place::Empty, Place::Empty]), Place::Empty);
        assert_eq!(of(&[Place::Here, Place::Empty]), Place::Unknown);
    }
}
