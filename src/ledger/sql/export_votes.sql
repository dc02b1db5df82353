-- All votes with :after < id <= :until, in the order of their ids.
select vote.id, vote.item_id, vote.created_at, vote.value, vote.change_number, vote.voter_id, vote.poll_id,
       vote.number,
       -- Of votes without a voter that a voiding took back: which vote this one is, takes back or casts again.
       case when vote.voter_id is null then
           coalesce(gone.vote_id, back.vote_id, again.vote_id)
       end as voided_vote_id
from vote
left join voided as gone on gone.vote_id = vote.id
left join voided as back on back.by_vote_id = vote.id
left join voided as again on again.again_vote_id = vote.id
where vote.id > :after and vote.id <= :until
order by vote.id
