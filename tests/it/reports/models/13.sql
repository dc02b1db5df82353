with chosen as (
    select item.id from item left join vote on vote.item_id = item.id
    group by item.id order by coalesce(sum(1 - 2 * (vote.change_number % 2)), 0) desc, item.id limit 1
)
select (created_at at time zone 'UTC')::date as day,
       count(*) filter (where value = 1 and change_number % 2 = 0) as up_votes_cast,
       count(*) filter (where value = -1 and change_number % 2 = 0) as down_votes_cast,
       count(*) filter (where change_number % 2 = 1) as votes_taken_back, sum(value) as score
from vote
where item_id = (select id from chosen)
group by 1
order by 1
