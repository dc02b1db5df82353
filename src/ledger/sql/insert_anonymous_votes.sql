-- Stores one batch of votes without voters: all whose item exists and takes
-- them without a decision.
-- $1 item ids and $2 values, an array entry for each vote; $3 the items of $1 that the
-- caller does not know, each once: mostly none; $4 the API key of all of them, or null.
-- insert_plain_votes.sql can do the same and more, but takes half as long again for each vote.
with found as materialized (
    -- Arrays: then the votes below are read in one pass and joined to nothing, even if
    -- this was planned while the tables were empty.
    select array_agg(id) filter (where rule_id is null and takes_down_votes)     as plain,
           array_agg(id) filter (where rule_id is null and not takes_down_votes) as up_only,
           -- Votes on these need a decision: cast_votes.sql.
           array_agg(id) filter (where rule_id is not null)                      as ruled
    from item where id = any($3::bigint[])
), inserted as (
    -- The column's default draws an id as each row is made, so ids go up in the order in
    -- which the votes are given.
    insert into vote (item_id, value)
    select given.item_id, given.value
    from unnest($1::bigint[], $2::smallint[]) as given (item_id, value)
    -- In this order: a vote on a plain item is then compared with half of them, and with no other array.
    where given.item_id = any((select plain from found)::bigint[])
       or given.item_id <> all($3::bigint[])
       or given.value > 0 and given.item_id = any((select up_only from found)::bigint[])
    returning id
), noted as (
    insert into vote_api_key (block, api_key_id, vote_ids)
    select id / 4096, $4::bigint, range_agg(int8range(id, id + 1))
    from inserted where $4::bigint is not null
    group by id / 4096
)
-- One row of arrays: a row for each vote would cost more to send than to insert.
select pg_current_xact_id()::text::bigint    as "xid!",
       -- The default of vote.created_at, in µs.
       (date_part('epoch', now()) * 1000000)::bigint as "created_at!",
       (select plain from found)             as "plain",
       (select up_only from found)           as "up_only",
       (select ruled from found)             as "ruled",
       -- As in insert_plain_votes.sql.
       case when vote_ids_are_new((select min(id) from inserted))
            then array(select id from inserted) end as "inserted!: Vec<i64>"
