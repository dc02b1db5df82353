//! Whether the counts are in this server's Redis, as the workers see it.

use super::LiveCounts;
use crate::live::LiveError;
use crate::live::buckets::Bucket;

/// Where the counts are, seen from a Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Here,
    /// A worker has entered another Redis since, or later data of this one.
    Elsewhere,
    /// This Redis has lost its data, or no worker has ever come to it.
    Empty,
    /// A bucket moves, fails over or has lost its data, or a worker is entering an epoch elsewhere.
    Unknown,
}

impl LiveCounts {
    /// How many buckets Redis has.
    pub fn bucket_count(&self) -> i16 {
        self.redis().bucket_count()
    }

    /// Where the counts are, if these are the last entries of buckets (by their place) into an epoch that workers have
    /// noted in Postgres: see `sync::epoch`. Elsewhere, if those of one bucket are.
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn place(&self, entries: &[(i16, String)]) -> Result<Place, LiveError> {
        let mut places = Vec::with_capacity(entries.len());
        for bucket in self.redis().buckets() {
            if let Some((_, entry)) = entries.iter().find(|(of, _)| *of == bucket.place()) {
                places.push(self.place_of(bucket, entry).await?);
            }
        }
        let are_all = |wanted: Place| places.iter().all(|place| *place == wanted);
        Ok(match () {
            () if places.contains(&Place::Elsewhere) => Place::Elsewhere,
            () if are_all(Place::Here) => Place::Here,
            () if are_all(Place::Empty) => Place::Empty,
            () => Place::Unknown,
        })
    }

    async fn place_of(&self, bucket: Bucket, entry: &str) -> Result<Place, LiveError> {
        let redis = self.redis();
        // While a worker is entering an epoch, the mark that it made in its Redis.
        let is_mark = entry.starts_with(&redis.keys().entering(bucket, ""));
        let key = if is_mark {
            entry.to_owned()
        } else {
            redis.keys().epoch(bucket)
        };
        let mut connection = redis.get(bucket).await?;
        let found: Option<String> = redis::cmd("GET").arg(key).query_async(&mut connection).await?;
        // After the answer: it may be the first one of a new primary, while the threads still count in the old one.
        if self.state.part(bucket).has_moved(redis.number(bucket).await?) {
            return Ok(Place::Unknown);
        }
        Ok(match found {
            Some(_) if is_mark => Place::Here,
            Some(known) if known == entry => Place::Here,
            Some(_) => Place::Elsewhere,
            None if is_mark => Place::Unknown,
            None => Place::Empty,
        })
    }
}
