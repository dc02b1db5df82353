select voter_id, count(*) as votes_cast, count(distinct item_id) as items, count(*) filter (where value = -1) as down_votes_cast
from vote
where voter_id is not null and change_number % 2 = 0 and created_at >= now() - interval '1 day'
group by voter_id
order by votes_cast desc, voter_id
limit 20
