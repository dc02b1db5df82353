with held as (
    select item_id,
           count(*) filter (where value = 1 and change_number % 2 = 0) - count(*) filter (where value = -1 and change_number % 2 = 1) as up_votes,
           count(*) filter (where value = -1 and change_number % 2 = 0) - count(*) filter (where value = 1 and change_number % 2 = 1) as down_votes
    from vote group by item_id
), counted as (
    select item.id, item.name, coalesce(held.up_votes, 0) as up_votes, coalesce(held.down_votes, 0) as down_votes
    from item left join held on held.item_id = item.id
)
select counted.id as item_id, counted.name as item_name, up_votes + down_votes as votes, up_votes, down_votes,
       up_votes - down_votes as score, round(up_votes::numeric / nullif(up_votes + down_votes, 0), 4) as up_share,
       place.max_votes as places, place.max_votes - (up_votes + down_votes) as places_free,
       coalesce(up_votes + down_votes >= place.max_votes, false) as is_full
from counted left join place on place.item_id = counted.id
order by up_votes + down_votes desc, counted.id
limit 20
