//! Entries of a call, by bucket: one call takes those of one bucket.

use super::Keys;
use super::buckets::{BUCKETS, Bucket};
use crate::domain::ItemId;

/// Those of a call's entries that are of one bucket.
pub(super) struct Group<'a, Entry> {
    pub bucket: Bucket,
    pub entries: Vec<&'a Entry>,
    /// The place of each among all entries. Empty: all entries are in this group.
    places: Vec<usize>,
}

impl<'a, Entry> Group<'a, Entry> {
    /// These entries, which are of this bucket.
    pub fn of(bucket: Bucket, entries: Vec<&'a Entry>) -> Self {
        let places = Vec::new();
        Self {
            bucket,
            entries,
            places,
        }
    }
}

/// Splits entries by the buckets of their items.
pub(super) fn groups<'a, Entry>(
    keys: &Keys,
    entries: &'a [Entry],
    item: impl Fn(&Entry) -> ItemId,
) -> Vec<Group<'a, Entry>> {
    if entries.is_empty() {
        return Vec::new();
    }
    if keys.buckets() == 1 {
        return vec![Group::of(Bucket::FIRST, entries.iter().collect())];
    }
    let mut of_bucket = [usize::MAX; BUCKETS as usize];
    let mut groups: Vec<Group<'a, Entry>> = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        let bucket = keys.bucket_of(item(entry));
        let at = &mut of_bucket[bucket.index()];
        if *at == usize::MAX {
            *at = groups.len();
            groups.push(Group::of(bucket, Vec::new()));
        }
        groups[*at].entries.push(entry);
        groups[*at].places.push(place);
    }
    groups
}

/// Replies in the order of the entries that groups were made of. Each group has a reply for each of its entries.
pub(super) fn in_order<Entry, Reply>(
    groups: &[Group<'_, Entry>],
    replies: impl IntoIterator<Item = Vec<Reply>>,
) -> Vec<Reply> {
    let mut placed: Vec<(usize, Reply)> = Vec::new();
    for (group, replies) in groups.iter().zip(replies) {
        if group.places.is_empty() {
            return replies;
        }
        placed.extend(group.places.iter().copied().zip(replies));
    }
    by_place(placed)
}

/// Sorts by place.
pub(super) fn by_place<Reply>(mut placed: Vec<(usize, Reply)>) -> Vec<Reply> {
    placed.sort_unstable_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, reply)| reply).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::KeyPrefix;

    #[test]
    fn replies_come_in_the_order_of_the_entries() {
        let items: Vec<ItemId> = [122, 1, 62, 2, 121].into_iter().filter_map(ItemId::new).collect();
        for keys in [
            Keys::one(KeyPrefix::default()),
            Keys::of_cluster(KeyPrefix::default()),
        ] {
            let groups = groups(&keys, &items, |item| *item);
            assert_eq!(groups.len(), if keys.buckets() == 1 { 1 } else { 2 });
            let replies = groups
                .iter()
                .map(|group| group.entries.iter().map(|item| item.get()).collect());
            assert_eq!(in_order(&groups, replies), [122, 1, 62, 2, 121]);
        }
    }
}
