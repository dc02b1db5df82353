with chosen as (
    select rule.id as poll_id
    from rule join item on item.rule_id = rule.id left join vote on vote.item_id = item.id
    where rule.title is not null
    group by rule.id order by coalesce(sum(1 - 2 * (vote.change_number % 2)), 0) desc, rule.id limit 1
), entry as (
    select vote.item_id, item.name, (vote.created_at at time zone 'UTC')::date as day, 1 - 2 * (vote.change_number % 2) as votes
    from chosen join item on item.rule_id = chosen.poll_id join vote on vote.item_id = item.id
)
select day, name as item_name, count(*) filter (where votes > 0) as votes_cast, count(*) filter (where votes < 0) as votes_taken_back,
       (select sum(votes) from entry as until where until.item_id = entry.item_id and until.day <= entry.day) as votes_so_far
from entry
group by item_id, name, day
order by day, item_id
