-- The results of all polls: a row for each choice.
select rule.id as poll_id, rule.key as poll_key, rule.title, rule.closes_at, rule.voter_count,
       item.id as item_id, item.key as item_key, item.name, item.vote_count + item.down_count as up_votes,
       rank() over (partition by rule.id order by item.vote_count + item.down_count desc) as rank,
       item.counted_at
from rule
join item on item.rule_id = rule.id
where rule.title is not null
order by rule.id, item.id
