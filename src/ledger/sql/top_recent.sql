-- The first $3 items by what votes changed since $4 (µs since 1970); $1 and $2, and $5 to $7,
-- are $1 and $2, and $4 to $6, of top_items.sql.
select item.id as "id!", item.name as "name!", item.key, item.vote_count as "vote_count!",
       item.down_count as "down_count!", changed.ups as "ups!", changed.downs as "downs!"
from (
    select recent_change.item_id, sum(recent_change.ups)::bigint as ups, sum(recent_change.downs)::bigint as downs
    from recent_change
    -- These are all values. The condition lets Postgres use the index.
    where recent_change.minutes in (5, 60)
      and recent_change.starts_at >= timestamptz 'epoch' + $4::bigint / 1000000 * interval '1 second'
      and ($2::bigint is null or recent_change.item_id = any(array(select id from item where rule_id = $2)))
    group by recent_change.item_id
) as changed
join item on item.id = changed.item_id
left join rule on rule.id = item.rule_id
where case when $2::bigint is null then not item.is_hidden and ($5::boolean or rule.title is null)
           else item.rule_id = $2 end
  and ($6::text is null or item.key >= $6)
  and ($7::text is null or item.key < $7)
  and (rule.id is null or rule.shows_results or $2 is not null and rule.closes_at <= clock_timestamp())
order by case $1 when 'net' then changed.ups - changed.downs
                 when 'up' then changed.ups
                 else changed.ups + changed.downs end desc, item.id
limit $3
