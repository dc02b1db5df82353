-- What the votes with $1 < id <= $2 of the last day changed, by item and five minutes.
-- A span is a number of five minutes: how many there were between 1970 and its start.
select item_id as "item_id!",
       (extract(epoch from starts_at) / 300)::bigint as "span!",
       ups as "ups!",
       downs as "downs!"
from (
    select item_id,
           date_bin('5 minutes', created_at, timestamptz 'epoch') as starts_at,
           -- An odd change takes the vote before it back, with the opposite value.
           count(*) filter (where value > 0 and change_number % 2 = 0)
           - count(*) filter (where value < 0 and change_number % 2 = 1) as ups,
           count(*) filter (where value < 0 and change_number % 2 = 0)
           - count(*) filter (where value > 0 and change_number % 2 = 1) as downs
    from vote
    where id > $1::bigint and id <= $2::bigint
      and created_at >= now() - interval '25 hours'
    group by item_id, starts_at
) as summed
