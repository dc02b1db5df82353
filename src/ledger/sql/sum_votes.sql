-- The sums of the votes with $1 < id <= $2 by item.
select item_id as "item_id!",
       sum(value)::bigint as "sum!",
       -- As in exact_counts.sql.
       count(*) filter (where value < 0 and change_number % 2 = 0)
       - count(*) filter (where value > 0 and change_number % 2 = 1) as "downs!",
       count(*) as "votes!"
from vote
where id > $1::bigint and id <= $2::bigint
group by item_id
