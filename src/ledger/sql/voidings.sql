-- The voidings, newest first; times in µs since 1970.
-- $1 only this one (null: all); $2 at most this many; $3 only those before this one (null: all).
select voiding.id as "id!", (extract(epoch from voiding.created_at) * 1000000)::bigint as "created_at!",
       voiding.reason as "reason!", voiding.voter_id, voiding.item_id,
       (extract(epoch from voiding.cast_from) * 1000000)::bigint as cast_from,
       (extract(epoch from voiding.cast_until) * 1000000)::bigint as cast_until,
       voiding.address_hashes is not null as "is_by_address!", voiding.api_key_id,
       voiding.until_vote_id as "until_vote_id!",
       voiding.done_vote_id as "done_vote_id!", voiding.undone_vote_id,
       votes.total as "voided_votes!", votes.restored as "restored_votes!", votes.left_void as "left_votes!"
from voiding
cross join lateral (
    select count(*) as total, count(again_vote_id) as restored, count(left_void) as left_void
    from voided where voided.voiding_id = voiding.id
) as votes
where ($1::bigint is null or voiding.id = $1)
  and ($3::bigint is null or voiding.id < $3)
order by voiding.id desc
limit $2
