-- The first $3 items by their saved counts, in the order $1 (net, up, movement). $2: only this poll's choices;
-- null: all items that are not hidden, of the choices of polls only if $4. Only items whose own keys lie from $5 on and
-- below $6; null: no such limit. Leaves out items whose counts are hidden.
select item.id as "id!", item.name as "name!", item.key, item.vote_count as "vote_count!",
       item.down_count as "down_count!"
from item left join rule on rule.id = item.rule_id
where case when $2::bigint is null then not item.is_hidden and ($4::boolean or rule.title is null)
           else item.rule_id = $2 end
  -- One condition for each limit: with both in one, Postgres could not use the index.
  and ($5::text is null or item.key >= $5)
  and ($6::text is null or item.key < $6)
  and (rule.id is null or rule.shows_results or $2 is not null and rule.closes_at <= clock_timestamp())
order by case $1 when 'net' then item.vote_count
                 when 'up' then item.vote_count + item.down_count
                 else item.vote_count + 2 * item.down_count end desc, item.id
limit $3
