-- Stores one batch of votes: all that are no repeats and whose item exists and
-- takes them without a decision.
-- $1 item ids, $2 voter ids (null: anonymous) and $3 values, an array entry for each vote;
-- $4 the items of $1 that the caller does not know, each once; $5 hashes of client addresses and
-- $6 ids of API keys, an array entry for each vote (null: none), or null as a whole.
with found as materialized (
    -- As in insert_anonymous_votes.sql.
    select array_agg(id) filter (where rule_id is null and takes_down_votes)     as plain,
           array_agg(id) filter (where rule_id is null and not takes_down_votes) as up_only,
           -- Votes on these need a decision: cast_votes.sql.
           array_agg(id) filter (where rule_id is not null)                      as ruled
    from item where id = any($4::bigint[])
), candidate as materialized (
    -- An id for each vote whose item takes it. A repeat's id stays unused.
    select given.position, given.item_id, given.voter_id, given.value, given.address, given.api_key,
           -- In the order of insert_anonymous_votes.sql.
           case when given.item_id = any((select plain from found)::bigint[])
                  or given.item_id <> all($4::bigint[])
                  or given.value > 0 and given.item_id = any((select up_only from found)::bigint[])
                then nextval('vote_id_seq') end as id
    from unnest($1::bigint[], $2::text[], $3::smallint[], $5::bytea[], $6::bigint[]) with ordinality
         as given (item_id, voter_id, value, address, api_key, position)
), of_voters as (
    -- First: where `vote_of_voter` is a view of `vote`, everyone locks it first.
    insert into vote_of_voter (id, item_id, voter_id, value)
    overriding system value
    select id, item_id, voter_id, value from candidate where id is not null and voter_id is not null
    -- Two batches that share voters take the index entries in the same order, so that they
    -- do not wait for each other (a deadlock). Of a voter's votes in one batch, the first wins.
    order by item_id, voter_id, position
    on conflict (item_id, voter_id, change_number) where voter_id is not null do nothing
    returning id
), without_voter as (
    insert into vote (id, item_id, value)
    overriding system value
    select id, item_id, value from candidate where id is not null and voter_id is null
    order by position
    returning id
), inserted as (
    select id from without_voter union all select id from of_voters
), noted as (
    insert into vote_address (vote_id, address_hash)
    select candidate.id, candidate.address
    from candidate
    where candidate.address is not null and candidate.id in (select id from inserted)
), noted_keys as (
    insert into vote_api_key (block, api_key_id, vote_ids)
    select candidate.id / 4096, candidate.api_key, range_agg(int8range(candidate.id, candidate.id + 1))
    from candidate
    where $6::bigint[] is not null and candidate.api_key is not null and candidate.id in (select id from inserted)
    group by candidate.id / 4096, candidate.api_key
)
-- One row of arrays: a row for each vote would cost more to send than to insert. A candidate
-- that was not inserted is a repeat; see last_votes.sql.
select pg_current_xact_id()::text::bigint                 as "xid!",
       (date_part('epoch', now()) * 1000000)::bigint as "created_at!",
       (select plain from found)                          as "plain",
       (select up_only from found)                        as "up_only",
       (select ruled from found)                          as "ruled",
       array(select id from candidate order by position)  as "candidates!: Vec<Option<i64>>",
       -- An error, and nothing is stored, if an id is not beyond the watermark.
       case when vote_ids_are_new((select min(id) from inserted))
            then array(select id from inserted) end       as "inserted!: Vec<i64>"
