-- Sets to whom an item is open: $1 item, $2 whether to anonymous votes, $3 whether to all voters,
-- $4 the act to note, if something changes. `is_choice`: nothing is set, because a choice takes
-- this from its poll; null: there is no such item.
with target as (
    select item.id, rule.title is not null as is_choice
    from item left join rule on rule.id = item.rule_id
    where item.id = $1::bigint
), made as (
    insert into open_item (item_id, to_anonymous, to_voters)
    select id, $2::boolean, $3::boolean from target where not is_choice
    on conflict (item_id) do update set to_anonymous = excluded.to_anonymous, to_voters = excluded.to_voters
        where (open_item.to_anonymous, open_item.to_voters)
              is distinct from (excluded.to_anonymous, excluded.to_voters)
    returning item_id
)
select (select is_choice from target) as is_choice,
       (select note_act($4, 'item:' || item_id) from made) as act_id
