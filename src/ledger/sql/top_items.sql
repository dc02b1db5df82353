-- The first $3 items by their saved counts, in the order $1 (net, up, movement). $2: only this poll's choices;
-- null: all items that lists show. Leaves out items whose counts are hidden.
select item.id as "id!", item.name as "name!", item.key, item.vote_count as "vote_count!",
       item.down_count as "down_count!"
from item left join rule on rule.id = item.rule_id
where case when $2::bigint is null then not item.is_hidden else item.rule_id = $2 end
  and (rule.id is null or rule.shows_results or $2 is not null and rule.closes_at <= clock_timestamp())
order by case $1 when 'net' then item.vote_count
                 when 'up' then item.vote_count + item.down_count
                 else item.vote_count + 2 * item.down_count end desc, item.id
limit $3
