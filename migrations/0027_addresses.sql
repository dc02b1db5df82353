-- From which client a vote came, so that votes can be voided by it. Kept only where servers have
-- TALLY_ADDRESS_KEYS, and deleted after TALLY_ADDRESS_RETENTION.
create table vote_address (
    vote_id      bigint primary key,
    -- The first 128 bits of HMAC-SHA-256 of the client's network: an IPv4 address, or 64 bits of an
    -- IPv6 address. The key is in no table, so who reads this cannot try all addresses. No vote of a
    -- secret poll has a row here.
    address_hash bytea not null
                 constraint vote_address_length check (octet_length(address_hash) = 16),
    -- By the database's clock; its age says when it is deleted.
    noted_at     timestamptz not null default now()
);
-- For the deletion.
create index vote_address_noted_at on vote_address (noted_at);

alter table voiding
    -- Votes from a client with one of these. Null: it does not matter. Empty: they were deleted, and no
    -- vote has them any more.
    add column address_hashes bytea[],
    drop constraint voiding_is_of_something,
    add constraint voiding_is_of_something
        check (num_nonnulls(voter_id, item_id, cast_from, cast_until, address_hashes) > 0);

insert into job (name) values ('delete_addresses');

-- As in 0021, and by address.
drop function votes_to_void(text, bigint, timestamptz, timestamptz, bigint, bigint, int, bigint);
create function votes_to_void(
    p_voter text, p_item bigint, p_from timestamptz, p_until timestamptz, p_addresses bytea[],
    p_after bigint, p_until_vote bigint,
    -- Votes that are found, and ids that are looked at, at the most.
    p_limit_votes int, p_limit_ids bigint,
    out up_to bigint, out ids bigint[]
)
language plpgsql as $$
#variable_conflict use_variable
declare
    seen int;
begin
    if p_addresses is not null then
        select array_agg(one.id), count(*), max(one.id) into ids, seen, up_to
        from (
            select vote.id
            from vote_address join vote on vote.id = vote_address.vote_id
            where vote_address.vote_id > p_after
              and vote_address.vote_id <= least(p_after + p_limit_ids, p_until_vote)
              and vote_address.address_hash = any(p_addresses)
              and vote.change_number % 2 = 0
              and (p_item is null or vote.item_id = p_item)
              and (p_voter is null or vote.voter_id = p_voter)
              and (p_from is null or vote.created_at >= p_from)
              and (p_until is null or vote.created_at < p_until)
            order by vote_address.vote_id
            limit p_limit_votes
        ) as one;
        if seen < p_limit_votes then up_to := least(p_after + p_limit_ids, p_until_vote); end if;
    elsif p_item is not null then
        select array_agg(one.id), count(*), max(one.id) into ids, seen, up_to
        from (
            select vote.id from vote
            where vote.item_id = p_item and vote.id > p_after and vote.id <= p_until_vote
              and vote.change_number % 2 = 0
              and (p_voter is null or vote.voter_id = p_voter)
              and (p_from is null or vote.created_at >= p_from)
              and (p_until is null or vote.created_at < p_until)
            -- In the order of the index vote_of_item, whenever this was planned.
            order by vote.item_id, vote.id
            limit p_limit_votes
        ) as one;
        if seen < p_limit_votes then up_to := p_until_vote; end if;
    else
        select array_agg(one.id), count(*), max(one.id) into ids, seen, up_to
        from (
            select vote.id from vote
            where vote.id > p_after and vote.id <= least(p_after + p_limit_ids, p_until_vote)
              and vote.change_number % 2 = 0
              and (p_voter is null or vote.voter_id = p_voter)
              and (p_from is null or vote.created_at >= p_from)
              and (p_until is null or vote.created_at < p_until)
            order by vote.id
            limit p_limit_votes
        ) as one;
        if seen < p_limit_votes then up_to := least(p_after + p_limit_ids, p_until_vote); end if;
    end if;
    ids := array(
        select vote.id from vote
        where vote.id = any(ids)
          and not exists (select from voided where voided.vote_id = vote.id)
          -- Of a vote without a voter, only a voiding is the end.
          and not exists (
              select from vote as next
              where next.item_id = vote.item_id and next.voter_id = vote.voter_id
                and next.change_number = vote.change_number + 1)
        order by vote.id);
end $$;

-- Voids the next votes of a voiding, and notes how far it is, in one transaction that holds up
-- who votes under the same rules for its time only. One voiding at a time.
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
    from votes_to_void(held.voter_id, held.item_id, held.cast_from, held.cast_until, held.address_hashes,
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
          and not exists (
              select from vote as next
              where next.item_id = vote.item_id and next.voter_id = vote.voter_id
                and next.change_number = vote.change_number + 1)
    ), inserted as (
        insert into vote (id, item_id, voter_id, value, change_number, poll_id)
        overriding system value
        select by_id, item_id, voter_id, -value, change_number + 1, poll_id
        from target
        -- In the order in which insert_votes.sql takes the entries of vote_once.
        order by item_id, voter_id
        -- The voter was first to take it back, on an item without a rule.
        on conflict (item_id, voter_id, change_number) where voter_id is not null do nothing
        returning id, item_id, voter_id, value, poll_id
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
                                select sum(1 - 2 * (vote.change_number % 2)) from vote
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
    xid := pg_current_xact_id()::text::bigint;
end $$;

-- Casts the next votes of a voiding again that can be: that its voter has not replaced, on an item
-- that is not full, in a poll where the voter may hold one more. Numbers are not given again. Notes
-- how far it is. The reply is that of void_votes; `voided_votes` is how many were cast again.
create or replace function undo_votes(
    p_voiding bigint, p_limit_votes int,
    out xid bigint, out up_to bigint, out voided_votes int,
    out items bigint[], out nets bigint[], out downs bigint[]
)
security definer
language plpgsql as $$
#variable_conflict use_variable
declare
    held voiding%rowtype;
    one record;
    why text;
    added bigint;
    stored bigint[] := '{}';
    of_voiding bigint[];
    choices int;
begin
    perform pg_advisory_xact_lock(7416153282);
    select * into strict held from voiding where voiding.id = p_voiding for update;
    if held.done_vote_id < held.until_vote_id then
        raise exception 'voiding % is not done', p_voiding using errcode = 'object_not_in_prerequisite_state';
    end if;
    of_voiding := array(
        select voided.vote_id from voided
        where voided.voiding_id = p_voiding and voided.vote_id > coalesce(held.undone_vote_id, 0)
        order by voided.voiding_id, voided.vote_id limit p_limit_votes);
    up_to := coalesce(of_voiding[cardinality(of_voiding)], held.until_vote_id);
    perform from rule
    where rule.id = any(array(
        select item.rule_id from item
        where item.id = any(array(select vote.item_id from vote where vote.id = any(of_voiding)))))
    order by rule.id for no key update;
    for one in
        select vote.id, vote.item_id, vote.voter_id, vote.value, vote.poll_id, back.change_number,
               rule.max_choices
        from vote
        join voided on voided.vote_id = vote.id
        join vote as back on back.id = voided.by_vote_id
        left join rule on rule.id = vote.poll_id
        where vote.id = any(of_voiding)
        order by vote.item_id, vote.voter_id, vote.id
    loop
        why := null;
        if one.poll_id is not null and one.voter_id is not null then
            select coalesce(sum(1 - 2 * (vote.change_number % 2)), 0) into choices
            from vote where vote.poll_id = one.poll_id and vote.voter_id = one.voter_id;
        else
            choices := 0;
        end if;
        if exists (
            select from vote
            where vote.item_id = one.item_id and vote.voter_id = one.voter_id
              and vote.change_number = one.change_number + 1) then
            why := 'changed';
        elsif choices >= one.max_choices then
            why := 'choices';
        elsif exists (select from place where place.item_id = one.item_id and place.taken >= place.max_votes) then
            why := 'full';
        end if;
        if why is null then
            added := null;
            insert into vote (id, item_id, voter_id, value, change_number, poll_id)
            overriding system value
            values (nextval('vote_id_seq'), one.item_id, one.voter_id, one.value, one.change_number + 1, one.poll_id)
            on conflict (item_id, voter_id, change_number) where voter_id is not null do nothing
            returning id into added;
            if added is null then why := 'changed'; end if;
        end if;
        if why is null then
            stored := stored || added;
            update voided set again_vote_id = added, left_void = null where voided.vote_id = one.id;
            -- It is still a vote of that client, for as long as that is kept.
            insert into vote_address (vote_id, address_hash, noted_at)
            select added, vote_address.address_hash, vote_address.noted_at
            from vote_address where vote_address.vote_id = one.id;
            update place set taken = place.taken + 1 where place.item_id = one.item_id;
            if one.poll_id is not null and choices = 0 then
                update rule set voter_count = rule.voter_count + 1 where rule.id = one.poll_id;
            end if;
        else
            update voided set left_void = why where voided.vote_id = one.id;
        end if;
    end loop;
    perform vote_ids_are_new((select min(id) from unnest(stored) as given (id)));
    voided_votes := cardinality(stored);
    select coalesce(array_agg(given.item_id), '{}'), coalesce(array_agg(given.net), '{}'),
           coalesce(array_agg(given.downs), '{}')
    into items, nets, downs
    from (
        select vote.item_id, sum(vote.value) as net, count(*) filter (where vote.value < 0) as downs
        from vote where vote.id = any(stored) group by vote.item_id
    ) as given;
    update voiding set undone_vote_id = up_to where voiding.id = p_voiding;
    xid := pg_current_xact_id()::text::bigint;
end $$;

-- As for cast_votes (0020).
do $$ begin
    execute format('alter function void_votes set search_path = %I, pg_temp', current_schema());
    execute format('alter function undo_votes set search_path = %I, pg_temp', current_schema());
end $$;
alter function void_votes set enable_seqscan = off;
alter function undo_votes set enable_seqscan = off;
revoke execute on function votes_to_void, void_votes, undo_votes from public;
