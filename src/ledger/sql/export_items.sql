-- All items, with their rules and saved counts.
select item.id, item.key, item.name, item.takes_down_votes, item.is_hidden, item.created_at,
       item.rule_id, rule.title is not null as is_choice,
       -- A choice has those of its poll.
       case when rule.title is null then rule.opens_at end as opens_at,
       case when rule.title is null then rule.closes_at end as closes_at,
       case when rule.title is null then rule.by_ballot end as by_ballot,
       case when rule.title is null then rule.is_secret end as is_secret,
       place.max_votes, place.is_numbered,
       item.vote_count + item.down_count as up_votes, item.down_count as down_votes, item.counted_at
from item
left join rule on rule.id = item.rule_id
left join place on place.item_id = item.id
order by item.id
