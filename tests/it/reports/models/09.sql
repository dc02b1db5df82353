with held as (
    select item.id as item_id, item.name as item_name,
           count(*) filter (where value = 1 and change_number % 2 = 0) - count(*) filter (where value = -1 and change_number % 2 = 1) as up_votes,
           count(*) filter (where value = -1 and change_number % 2 = 0) - count(*) filter (where value = 1 and change_number % 2 = 1) as down_votes
    from item join vote on vote.item_id = item.id
    where item.takes_down_votes and not item.is_hidden
    group by item.id
)
select item_id, item_name, up_votes + down_votes as votes, up_votes, down_votes, round(up_votes::numeric / (up_votes + down_votes), 4) as up_share
from held
where up_votes + down_votes >= 10
order by abs(round(up_votes::numeric / (up_votes + down_votes), 4) - 0.5), up_votes + down_votes desc, item_id
limit 20
