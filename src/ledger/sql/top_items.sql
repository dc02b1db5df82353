-- The first $3 items by what $1 says (net, up, movement), by their saved counts; $2 only of this poll, null:
-- of all that lists show. Counts that are hidden are in no list.
select item.id as "id!", item.name as "name!", item.key, item.vote_count as "vote_count!",
       item.down_count as "down_count!"
from item left join rule on rule.id = item.rule_id
where case when $2::bigint is null then not item.is_hidden else item.rule_id = $2 end
  and (rule.id is null or rule.shows_results or $2 is not null and rule.closes_at <= clock_timestamp())
order by case $1 when 'net' then item.vote_count
                 when 'up' then item.vote_count + item.down_count
                 else item.vote_count + 2 * item.down_count end desc, item.id
limit $3
