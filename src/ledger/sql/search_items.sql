-- The next $2 items above $1 that are not hidden and match $3: each word of $3 begins a word of the name.
-- $4: without the choices of polls. A text without a word finds nothing.
select id as "id!", name as "name!", key, is_hidden as "is_hidden!", vote_count as "vote_count!", down_count as "down_count!",
       rule_id is not null or not takes_down_votes as "has_rules!",
       (extract(epoch from counted_at) * 1000000)::bigint as counted_at
from item
where id > $1 and not is_hidden
  and to_tsvector('simple', search_text(name)) @@ search_query($3)
  and not ($4 and exists (select from rule where rule.id = item.rule_id and rule.title is not null))
order by id
limit $2
