-- Sets to whom an item is open: $1 item, $2 whether to anonymous votes, $3 whether to all voters,
-- $4 the act to note. No row: there is no such item.
with made as (
    insert into open_item (item_id, to_anonymous, to_voters)
    select id, $2::boolean, $3::boolean from item where id = $1::bigint
    on conflict (item_id) do update set to_anonymous = excluded.to_anonymous, to_voters = excluded.to_voters
    returning item_id
)
select note_act($4, 'item:' || item_id) as act_id from made
