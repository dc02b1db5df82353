-- Edits of voters, newest first; times in µs since 1970.
-- $1 only this one (null: all); $2 at most this many; $3 only those before this one (null: all).
select voter_edit.id as "id!", voter_edit.kind as "kind!", voter_edit.from_voter_id, voter_edit.to_voter_id as "to_voter_id!",
       (extract(epoch from voter_edit.created_at) * 1000000)::bigint as "created_at!",
       voter_edit.until_vote_id as "until_vote_id!", voter_edit.looked_vote_id as "looked_vote_id!",
       voter_edit.done_vote_id as "done_vote_id!", voter_edit.moved_rows as "moved_rows!",
       voter_edit.taken_back_votes as "taken_back_votes!",
       (extract(epoch from voter_edit.ended_at) * 1000000)::bigint as ended_at, voter_edit.is_refused as "is_refused!"
from voter_edit
where ($1::bigint is null or voter_edit.id = $1)
  and ($3::bigint is null or voter_edit.id < $3)
order by voter_edit.id desc
limit $2
