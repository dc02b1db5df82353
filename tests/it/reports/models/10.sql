select item.id as item_id, item.name as item_name, sum(1 - 2 * (vote.change_number % 2)) as votes,
       (max(vote.created_at) filter (where vote.change_number % 2 = 0) at time zone 'UTC')::date as last_day
from item join vote on vote.item_id = item.id left join rule on rule.id = item.rule_id
where (rule.opens_at is null or rule.opens_at <= now()) and (rule.closes_at is null or rule.closes_at > now())
group by item.id
having sum(1 - 2 * (vote.change_number % 2)) > 0
   and (max(vote.created_at) filter (where vote.change_number % 2 = 0) at time zone 'UTC')::date < current_date - 7
order by votes desc, item.id
limit 20
