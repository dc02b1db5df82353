with entry as (
    select item.id as item_id, item.name, (item.created_at at time zone 'UTC')::date as created_on,
           (vote.created_at at time zone 'UTC')::date - (item.created_at at time zone 'UTC')::date as age, 1 - 2 * (vote.change_number % 2) as votes
    from item left join vote on vote.item_id = item.id
    where item.created_at >= now() - interval '30 days'
)
select item_id, name as item_name, created_on, coalesce(sum(votes) filter (where age = 0), 0) as day_1,
       coalesce(sum(votes) filter (where age = 1), 0) as day_2, coalesce(sum(votes) filter (where age = 2), 0) as day_3,
       coalesce(sum(votes) filter (where age < 7), 0) as first_week
from entry
group by item_id, name, created_on
order by first_week desc, item_id
limit 20
