-- One batch of votes: stores what may be stored, and says what became of each.
-- $1 item ids, $2 voter ids (null: anonymous), $3 values; one array entry a vote.
with candidate as materialized (
    -- An id for each vote whose item exists; a repeated vote's id goes unused.
    -- The subquery, and `limit 1` below, hold the plan to one index lookup a vote.
    -- It is planned once, maybe while the tables are empty, and a join could then
    -- be planned as a scan, which would be slow for ever after.
    select given.position, given.item_id, given.voter_id, given.value,
           case when (select true from item where item.id = given.item_id)
                then nextval('vote_id_seq') end as id
    from unnest($1::bigint[], $2::text[], $3::smallint[]) with ordinality
         as given (item_id, voter_id, value, position)
), inserted as (
    insert into vote (id, item_id, voter_id, value)
    overriding system value
    select id, item_id, voter_id, value from candidate where id is not null
    -- Two batches that share voters take the index entries in one order, so
    -- that neither waits for the other in a circle.
    order by item_id, voter_id
    on conflict (item_id, voter_id, change_number) where voter_id is not null do nothing
    returning id
), repeated as (
    select candidate.position, first.id, first.value
    from candidate
    cross join lateral (
        select vote.id, vote.value
        from vote
        where vote.item_id = candidate.item_id
          and vote.voter_id = candidate.voter_id
          and vote.change_number = 0
        limit 1
    ) as first
    where candidate.id is not null
      and candidate.id not in (select id from inserted)
)
-- One row of arrays: a row a vote would cost more to send than to insert.
select pg_current_xact_id()::text::bigint                                 as "xid!",
       array(select id from candidate order by position)                  as "candidates!: Vec<Option<i64>>",
       array(select id from inserted)                                     as "inserted!: Vec<i64>",
       array(select position from repeated order by position)             as "repeated_positions!: Vec<i64>",
       array(select id from repeated order by position)                   as "repeated_ids!: Vec<i64>",
       array(select value from repeated order by position)                as "repeated_values!: Vec<i16>"
