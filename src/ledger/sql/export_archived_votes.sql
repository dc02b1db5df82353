-- All votes of the archive :archive, in the order of their ids, with the columns of export_votes.sql.
select vote.id, vote.item_id, vote.created_at, vote.value, vote.change_number, vote.voter_id, vote.poll_id,
       vote.number,
       case when vote.voter_id is null then
           coalesce(gone.vote_id, back.vote_id, again.vote_id)
       end as voided_vote_id
from vote
join archived_item on archived_item.item_id = vote.item_id and archived_item.archive_id = :archive
left join voided as gone on gone.vote_id = vote.id
left join voided as back on back.by_vote_id = vote.id
left join voided as again on again.again_vote_id = vote.id
where vote.id <= :until
order by vote.id
