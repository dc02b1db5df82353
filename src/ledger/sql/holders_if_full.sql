-- The voters who hold a vote on the item $1, up to $2 of them; null: the item is not full. One
-- statement has one snapshot, so nobody else holds a vote as long as nothing on the item changes.
select case when place.taken >= place.max_votes then array(
           select last.voter_id
           from (
               select distinct on (vote.voter_id) vote.voter_id, vote.change_number
               from vote
               where vote.item_id = place.item_id and vote.voter_id is not null
               order by vote.voter_id, vote.change_number desc
           ) as last
           where last.change_number % 2 = 0
           limit $2
       ) end as "holders?: Vec<String>"
from place
where place.item_id = $1
