-- Stores votes that need a decision: the functions cast_votes and decide_votes in migrations/functions/.
-- An entry for each line: $1 request, $2 poll, $3 item, $4 voter, $5 value, $6 keep, $7 whole,
-- $8 ballot, $9 key and $10 body; each of these three is null as a whole if no line has one.
-- $11 hashes of client addresses and $12 ids of API keys, an entry for each request (null: none), or null
-- as a whole.
with decided as materialized (
    select *
    from cast_votes($1::int[], $2::bigint[], $3::bigint[], $4::text[], $5::smallint[], $6::boolean[], $7::boolean[],
                    $8::bytea[], $9::bytea[], $10::bytea[])
), noted as (
    insert into vote_address (vote_id, address_hash)
    select stored.id, ($11::bytea[])[stored.request]
    from decided, unnest(row_requests, row_ids, row_changes, row_is_new) as stored (request, id, change_number, is_new)
    where $11::bytea[] is not null and ($11::bytea[])[stored.request] is not null
      and stored.is_new and stored.id is not null
      -- A retraction is no vote. Nothing says where a secret vote came from.
      and stored.change_number % 2 = 0 and outcomes[stored.request] <> 'secret'
), noted_keys as (
    insert into vote_api_key (block, api_key_id, vote_ids)
    select stored.id / 4096, ($12::bigint[])[stored.request], range_agg(int8range(stored.id, stored.id + 1))
    from decided, unnest(row_requests, row_ids, row_changes, row_is_new) as stored (request, id, change_number, is_new)
    where $12::bigint[] is not null and ($12::bigint[])[stored.request] is not null
      -- As above.
      and stored.is_new and stored.id is not null
      and stored.change_number % 2 = 0 and outcomes[stored.request] <> 'secret'
    group by stored.id / 4096, ($12::bigint[])[stored.request]
), awaited as materialized (
    -- As in last_votes.sql.
    select pg_logical_emit_message(true, 'tally', '') as note
    from decided
    where current_setting('synchronous_standby_names') <> '' and outcomes && array['repeated', 'replayed']
)
select xid                 as "xid!",
       (date_part('epoch', now()) * 1000000)::bigint as "created_at!",
       outcomes            as "outcomes!: Vec<String>",
       row_requests        as "row_requests!: Vec<i32>",
       row_items           as "row_items!: Vec<i64>",
       row_values          as "row_values!: Vec<i16>",
       row_changes         as "row_changes!: Vec<i16>",
       row_numbers         as "row_numbers!: Vec<Option<i64>>",
       row_ids             as "row_ids!: Vec<Option<i64>>",
       row_is_new          as "row_is_new!: Vec<bool>",
       hidden_items        as "hidden_items?: Vec<i64>"
from decided
where (select count(note) from awaited) >= 0
