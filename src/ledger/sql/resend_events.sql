-- Has events delivered again, from the first try on: the event $1; or with null the dead ones, at most $2, in the order
-- in which they happened. Notes the act $3, if there are any. Returns how many.
with chosen as (
    select id from event
    where case when $1::bigint is null then dead_at is not null else id = $1 end
    order by id limit $2
), again as (
    update event
    set tries = 0, refusals = 0, first_tried_at = null, next_try_at = clock_timestamp(), delivered_at = null, dead_at = null
    from chosen where event.id = chosen.id
    returning event.id
), counted as (
    select count(*) as total from again
)
select total as "total!",
       case when total > 0 then
           note_act(jsonb_set($3::text::jsonb, '{details,events}', to_jsonb(total))::text, 'event:' || $1::bigint)
       end as act_id
from counted
