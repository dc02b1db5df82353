-- Stores votes that need a decision: votes on items with a rule, changes, retractions, ballots, and
-- votes with idempotency keys.
--
-- One statement decides a simple batch. In a simple batch, each request is its voter's first vote
-- on an item with a limit or with numbers, or a vote without a voter there, and asks for nothing
-- else. decide_votes decides all other batches, one request after the other.
--
-- Arguments and results: those of decide_votes.
-- Called by servers, who autocommit it: its locks are free at its end.
-- Locks: the rules of the items, in the order of their ids, against other decisions; then the rows of
-- `place` that it changes. decide_votes takes the same locks once more.
create or replace function cast_votes(
    p_request int[],
    p_poll    bigint[],
    p_item    bigint[],
    p_voter   text[],
    p_value   smallint[],
    p_keep    boolean[],
    p_whole   boolean[],
    p_ballot  bytea[] default null,
    p_key     bytea[] default null,
    p_body    bytea[] default null,
    out xid      bigint,
    out outcomes text[],
    out row_requests int[],
    out row_items    bigint[],
    out row_values   smallint[],
    out row_changes  smallint[],
    out row_numbers  bigint[],
    out row_ids      bigint[],
    out row_is_new   boolean[],
    out hidden_items bigint[]
)
-- As decide_votes.
security definer
language plpgsql as $$
#variable_conflict use_variable
declare
    is_simple boolean := false;
begin
    if p_ballot is null and p_key is null and true = all(p_keep) and false = all(p_whole)
       and array_remove(p_poll, null) = '{}' then
        -- 1. Lock, as decide_votes does; it takes the same locks once more.
        perform from rule
        where id = any(array_remove(array(select item.rule_id from item where item.id = any(p_item)), null))
        order by id
        for no key update;
        -- 2. Look, decide and write. The snapshot is from after the lock, so it has all that was
        -- decided before. The statement locks `vote` before it draws an id: see
        -- WorkerLedger::safe_vote_id.
        with line as materialized (
            select given.request, given.item, given.voter, given.value, place.is_numbered, place.last_number,
                   -- Each takes one place of its item, in their order.
                   row_number() over (partition by given.item order by given.request) as turn,
                   -- Null: there is no limit.
                   place.max_votes - place.taken as free,
                   -- False without a rule.
                   coalesce(rule.title is null and not rule.by_ballot and rule.shows_results and rule.archive_id is null
                            and coalesce(rule.opens_at <= clock_timestamp(), true)
                            and coalesce(rule.closes_at > clock_timestamp(), true)
                            and (given.value > 0 or given.value < 0 and item.takes_down_votes)
                            and past.held_before is null,
                            false) as is_simple
            from unnest(p_request, p_item, p_voter, p_value) as given (request, item, voter, value)
            left join item on item.id = given.item
            -- No row: the item takes votes without a decision, or is not there.
            left join rule on rule.id = item.rule_id
            left join place on place.item_id = item.id
            left join lateral (
                select true as held_before
                from vote_of_voter as one
                where one.item_id = given.item and one.voter_id = given.voter
                order by one.item_id desc, one.voter_id desc, one.change_number desc
                limit 1
            ) as past on given.voter is not null
        ), checked as materialized (
            -- A voter's second vote on an item is not the first.
            select bool_and(line.is_simple)
                   and count(line.voter) = count(distinct (line.item, line.voter)) filter (where line.voter is not null)
                   as is_simple
            from line
        ), granted as materialized (
            select line.*, nextval('vote_id_seq') as id
            from line
            where (select checked.is_simple from checked) and (line.free is null or line.turn <= line.free)
        ), inserted as (
            insert into vote (id, item_id, value, change_number, number)
            overriding system value
            select granted.id, granted.item, granted.value, 0,
                   case when granted.is_numbered then granted.last_number + granted.turn end
            from granted where granted.voter is null
        ), inserted_of_voters as (
            insert into vote_of_voter (id, item_id, voter_id, value, change_number, number)
            overriding system value
            select granted.id, granted.item, granted.voter, granted.value, 0,
                   case when granted.is_numbered then granted.last_number + granted.turn end
            from granted where granted.voter is not null
        ), taken as (
            update place
            set taken = place.taken + given.votes,
                last_number = place.last_number + case when place.is_numbered then given.votes else 0 end
            from (select granted.item, count(*) as votes from granted group by granted.item) as given
            where place.item_id = given.item
        )
        select (select checked.is_simple from checked),
               (select array_agg(case when line.free is null or line.turn <= line.free then 'stored' else 'full' end
                                 order by line.request)
                from line),
               coalesce(array_agg(granted.request), '{}'),
               coalesce(array_agg(granted.item), '{}'),
               coalesce(array_agg(granted.value), '{}'),
               coalesce(array_agg(case when granted.is_numbered then granted.last_number + granted.turn end), '{}'),
               coalesce(array_agg(granted.id), '{}')
        into is_simple, outcomes, row_requests, row_items, row_values, row_numbers, row_ids
        from granted;
    end if;
    if is_simple then
        perform vote_ids_are_new((select min(id) from unnest(row_ids) as drawn (id)));
        row_changes := array_fill(0::smallint, array[cardinality(row_ids)]);
        row_is_new := array_fill(true, array[cardinality(row_ids)]);
        xid := pg_current_xact_id()::text::bigint;
        return;
    end if;
    select decided.* into xid, outcomes, row_requests, row_items, row_values, row_changes, row_numbers, row_ids,
                          row_is_new, hidden_items
    from decide_votes(p_request, p_poll, p_item, p_voter, p_value, p_keep, p_whole, p_ballot, p_key, p_body) as decided;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function cast_votes set search_path = %I, pg_temp', current_schema());
end $$;
-- A plan that is made while a table is empty must also suit a full table.
alter function cast_votes set enable_seqscan = off;
revoke execute on function cast_votes from public;
