-- The voidings, newest first; $1 only this one, null: all; $2 how many at the most.
select voiding.id as "id!", voiding.reason as "reason!", voiding.until_vote_id as "until_vote_id!",
       voiding.done_vote_id as "done_vote_id!", voiding.undone_vote_id,
       votes.total as "voided_votes!", votes.restored as "restored_votes!", votes.left_void as "left_votes!"
from voiding
cross join lateral (
    select count(*) as total, count(again_vote_id) as restored, count(left_void) as left_void
    from voided where voided.voiding_id = voiding.id
) as votes
where $1::bigint is null or voiding.id = $1
order by voiding.id desc
limit $2
