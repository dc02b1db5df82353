-- The next $2 items above $1 that are not hidden and are no choices of polls, among the next $3 items.
select id, name, key, is_hidden, vote_count, down_count,
       rule_id is not null or not takes_down_votes as "has_rules!",
       (extract(epoch from counted_at) * 1000000)::bigint as counted_at
from (
    select id, name, key, is_hidden, vote_count, down_count, rule_id, takes_down_votes, counted_at
    from item where id > $1 order by id limit $3
) as next
where not is_hidden
  -- One look into an index for each row. For `not exists`, Postgres would read all rules first.
  and coalesce((select rule.title is null from rule where rule.id = next.rule_id), true)
order by id
limit $2
