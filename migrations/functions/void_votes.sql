-- Takes back the next votes of a voiding, but for archived ones, and notes how far it is. Voters under the same rules wait
-- only for its transaction: a voiding takes many of them.
--
-- p_voiding: the voiding. p_limit_votes: the most votes that it takes back. p_limit_ids: the most vote
-- ids that it looks at.
-- Makes the event that the voiding is done, in the transaction that does the last of it.
-- Returns what was taken back. Raises object_not_in_prerequisite_state if the voiding is being undone.
-- Called by operators (`tally void`, and servers with an operator's login).
-- Locks: the advisory lock 7416153282, so that one voiding runs at a time; the voiding; the rules of
-- the votes' items, in the order of their ids; then the rows of `place` and `rule` that it changes.
create or replace function void_votes(
    p_voiding bigint, p_limit_votes int, p_limit_ids bigint,
    out xid bigint,
    -- Up to which id the votes are done.
    out up_to bigint,
    out voided_votes int,
    -- What the rows add to each item: to its count, and to its down-votes.
    out items bigint[], out nets bigint[], out downs bigint[]
)
security definer
language plpgsql as $$
#variable_conflict use_variable
declare
    found_votes bigint[];
    held voiding%rowtype;
    lowest bigint;
begin
    perform pg_advisory_xact_lock(7416153282);
    select * into strict held from voiding where voiding.id = p_voiding for update;
    if held.undone_vote_id is not null then
        raise exception 'voiding % is undone', p_voiding using errcode = 'object_not_in_prerequisite_state';
    end if;
    select one.up_to, one.ids into up_to, found_votes
    from votes_to_void(held.voter_id, held.item_id, held.cast_from, held.cast_until, held.address_hashes, held.api_key_id,
                       held.done_vote_id, held.until_vote_id, p_limit_votes, p_limit_ids) as one;
    -- Lock, then look again: as in cast_votes.
    perform from rule
    where rule.id = any(array(
        select item.rule_id from item
        where item.id = any(array(select vote.item_id from vote where vote.id = any(found_votes)))))
    order by rule.id for no key update;
    with target as materialized (
        select vote.id, vote.item_id, vote.voter_id, vote.value, vote.change_number, vote.poll_id,
               -- Behind the lock on `vote`: see WorkerLedger::safe_vote_id.
               nextval('vote_id_seq') as by_id
        from vote
        where vote.id = any(found_votes)
          and not exists (select from voided where voided.vote_id = vote.id)
          and not exists (select from archived_item where archived_item.item_id = vote.item_id)
          and not exists (
              select from vote_of_voter as next
              where next.item_id = vote.item_id and next.voter_id = vote.voter_id
                and next.change_number = vote.change_number + 1)
    ), without_voter as (
        insert into vote (id, item_id, value, change_number, poll_id)
        overriding system value
        select by_id, item_id, -value, change_number + 1, poll_id
        from target where voter_id is null
        returning id, item_id, voter_id, value, poll_id
    ), of_voters as (
        insert into vote_of_voter (id, item_id, voter_id, value, change_number, poll_id)
        overriding system value
        select by_id, item_id, voter_id, -value, change_number + 1, poll_id
        from target where voter_id is not null
        -- In the order in which insert_plain_votes.sql takes the entries of vote_once.
        order by item_id, voter_id
        -- The voter was first to take it back, on an item without a rule.
        on conflict (item_id, voter_id, change_number) where voter_id is not null do nothing
        returning id, item_id, voter_id, value, poll_id
    ), inserted as (
        select id, item_id, voter_id, value, poll_id from without_voter
        union all
        select id, item_id, voter_id, value, poll_id from of_voters
    ), marked as (
        insert into voided (vote_id, voiding_id, by_vote_id)
        select target.id, p_voiding, inserted.id
        from target join inserted on inserted.id = target.by_id
    ), freed as (
        update place set taken = place.taken - given.total
        from (select item_id, count(*) as total from inserted group by item_id) as given
        where place.item_id = given.item_id
    ), turnout as (
        update rule set voter_count = rule.voter_count - given.total
        from (
            select gone.poll_id, sum(gone.total) as total
            from (
                select inserted.poll_id,
                       case when inserted.voter_id is null then count(*)
                            -- Under the snapshot from before the insert: all that was held.
                            when count(*) = (
                                select sum(1 - 2 * (vote.change_number % 2)) from vote_of_voter as vote
                                where vote.poll_id = inserted.poll_id and vote.voter_id = inserted.voter_id)
                            then 1 else 0 end as total
                from inserted where inserted.poll_id is not null
                group by inserted.poll_id, inserted.voter_id
            ) as gone
            group by gone.poll_id
        ) as given
        where rule.id = given.poll_id
    )
    select coalesce(sum(one.total), 0), min(one.lowest), coalesce(array_agg(one.item_id), '{}'),
           coalesce(array_agg(one.net), '{}'), coalesce(array_agg(one.downs), '{}')
    into voided_votes, lowest, items, nets, downs
    from (
        select item_id, count(*) as total, min(id) as lowest, sum(value) as net,
               -count(*) filter (where value > 0) as downs
        from inserted group by item_id
    ) as one;
    perform vote_ids_are_new(lowest);
    update voiding set done_vote_id = up_to where voiding.id = p_voiding;
    if up_to >= held.until_vote_id then
        perform note_event('voiding.done', 'voiding:' || p_voiding, p_voiding::text,
                           jsonb_strip_nulls(jsonb_build_object(
                               'voiding_id', p_voiding, 'item_id', held.item_id,
                               'voided_votes', (select count(*) from voided where voided.voiding_id = p_voiding))));
    end if;
    xid := pg_current_xact_id()::text::bigint;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function void_votes set search_path = %I, pg_temp', current_schema());
end $$;
-- A plan that is made while a table is empty must also suit a full table.
alter function void_votes set enable_seqscan = off;
revoke execute on function void_votes from public;
