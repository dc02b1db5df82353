-- Casts the next votes of a voiding again, if their voters have not voted otherwise since, the item is
-- not full, the poll allows one more choice, and no archive has the vote. Numbers are not given again. Notes how far
-- it is, and makes the event that the voiding is undone with the last of it.
--
-- p_voiding: the voiding. p_limit_votes: the most votes that it looks at.
-- Returns what void_votes does; `voided_votes` is how many were cast again. Raises
-- object_not_in_prerequisite_state if the voiding is not done.
-- Called by operators (`tally void`, and servers with an operator's login). Locks: as void_votes.
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
    update voided set left_void = 'archived'
    where voided.vote_id = any(of_voiding) and not exists (select from vote where vote.id = voided.vote_id);
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
            from vote_of_voter as vote where vote.poll_id = one.poll_id and vote.voter_id = one.voter_id;
        else
            choices := 0;
        end if;
        if exists (select from archived_item where archived_item.item_id = one.item_id) then
            why := 'archived';
        elsif exists (
            select from vote_of_voter as vote
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
            if one.voter_id is null then
                insert into vote (id, item_id, value, change_number, poll_id)
                overriding system value
                values (nextval('vote_id_seq'), one.item_id, one.value, one.change_number + 1, one.poll_id)
                returning id into added;
            else
                insert into vote_of_voter (id, item_id, voter_id, value, change_number, poll_id)
                overriding system value
                values (nextval('vote_id_seq'), one.item_id, one.voter_id, one.value, one.change_number + 1, one.poll_id)
                on conflict (item_id, voter_id, change_number) where voter_id is not null do nothing
                returning id into added;
            end if;
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
    -- It is still cast with that key.
    insert into vote_api_key (block, api_key_id, vote_ids)
    select voided.again_vote_id / 4096, noted.api_key_id,
           range_agg(int8range(voided.again_vote_id, voided.again_vote_id + 1))
    from (
        select vote_api_key.api_key_id, generate_series(lower(part.ids), upper(part.ids) - 1) as id
        from vote_api_key, unnest(vote_api_key.vote_ids) as part (ids)
        where vote_api_key.block in (select given.id / 4096 from unnest(of_voiding) as given (id))
    ) as noted
    join voided on voided.vote_id = noted.id
    where voided.voiding_id = p_voiding and voided.again_vote_id = any(stored)
    group by voided.again_vote_id / 4096, noted.api_key_id;
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
    if not exists (select from voided where voided.voiding_id = p_voiding and voided.vote_id > up_to) then
        perform note_event('voiding.undone', 'voiding:' || p_voiding, p_voiding::text,
                           jsonb_strip_nulls(jsonb_build_object(
                               'voiding_id', p_voiding, 'item_id', held.item_id,
                               'restored_votes', count(voided.again_vote_id),
                               'left_votes', count(*) - count(voided.again_vote_id))))
        from voided where voided.voiding_id = p_voiding;
    end if;
    xid := pg_current_xact_id()::text::bigint;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function undo_votes set search_path = %I, pg_temp', current_schema());
end $$;
-- A plan that is made while a table is empty must also suit a full table.
alter function undo_votes set enable_seqscan = off;
-- Postgres takes the ids in multiranges for very many, and would compile the statement.
alter function undo_votes set jit = off;
revoke execute on function undo_votes from public;
