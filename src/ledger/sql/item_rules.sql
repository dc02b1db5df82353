-- The rules of the items $1, in no order; times in µs since 1970.
select item.id as "item_id!",
       item.takes_down_votes,
       place.max_votes as "max_votes?",
       coalesce(place.is_numbered, false) as "is_numbered!",
       (extract(epoch from rule.opens_at) * 1000000)::bigint as "opens_at?",
       (extract(epoch from rule.closes_at) * 1000000)::bigint as "closes_at?",
       coalesce(rule.by_ballot, false) as "by_ballot!",
       coalesce(not rule.shows_results, false) as "hides_count!",
       case when rule.title is not null then rule.id end as "poll_id?"
from item
left join rule on rule.id = item.rule_id
left join place on place.item_id = item.id
where item.id = any($1::bigint[])
