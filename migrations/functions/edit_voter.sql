-- Does the next part of a voter's edit, and notes how far it is. All of a voter's rows on an item, or in a
-- poll, get the other voter id in one transaction. So decisions and audits find whole histories.
--
-- Where both voters hold a vote on an item, or more choices together than a poll allows, the second voter's
-- votes stay, and then the first's oldest ones. The others are taken back by further rows, as by a voiding. A renaming looks first whether
-- the new voter id has votes, too: then it ends, and nothing is changed.
--
-- p_edit: the edit. p_limit_ids: the most vote ids that it looks at. p_limit_rows: the most rows that it
-- looks for; with the others on their items and in their polls it may change more.
-- Returns what it took back. Nothing is left to do if it has ended. Raises object_not_in_prerequisite_state while the
-- ledger is being split, or a range of it dropped.
-- Called by operators (`tally voter`, and servers with an operator's login).
-- Locks: the advisory lock 7416153282, as void_votes; the edit; the rules of the votes' items, in the order of
-- their ids; the advisory lock 7416153283, which decisions and imports share; then the rows of `place` and
-- `rule` that it changes.
create or replace function edit_voter(
    p_edit bigint, p_limit_ids bigint, p_limit_rows int,
    out xid bigint,
    -- What the rows add to each item: to its count, and to its down-votes.
    out items bigint[], out nets bigint[], out downs bigint[]
)
security definer
language plpgsql as $$
#variable_conflict use_variable
declare
    held voter_edit%rowtype;
    from_id bigint;
    end_id bigint;
    found_rows int;
    last_found bigint;
    found_items bigint[];
    found_polls bigint[];
    lowest bigint;
    standing record;
    moved bigint;
    -- All that an erased voter was called.
    names text[];
begin
    -- Whoever splits the ledger copies rows that this would change.
    if not pg_try_advisory_xact_lock_shared(7416153285) then
        raise exception 'the ledger is being split into ranges, or an empty range is dropped: resume the edit afterwards'
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    items := '{}'; nets := '{}'; downs := '{}';
    perform pg_advisory_xact_lock(7416153282);
    select * into strict held from voter_edit where voter_edit.id = p_edit for update;
    xid := pg_current_xact_id()::text::bigint;
    if held.ended_at is not null then
        return;
    end if;
    if held.kind = 'rename' and held.looked_vote_id < held.until_vote_id then
        -- No vote lies between them: a sequence may have been set far ahead.
        select least(coalesce(min(vote.id) - 1, held.until_vote_id), held.until_vote_id) into from_id
        from vote_of_voter as vote where vote.id > held.looked_vote_id;
        end_id := least(from_id + p_limit_ids, held.until_vote_id);
        update voter_edit
        set looked_vote_id = end_id,
            has_votes = voter_edit.has_votes or seen.of_voter,
            is_taken = voter_edit.is_taken or seen.of_other
        from (
            select coalesce(bool_or(vote.voter_id = held.from_voter_id), false) as of_voter,
                   coalesce(bool_or(vote.voter_id = held.to_voter_id), false) as of_other
            from vote_of_voter as vote
            where vote.id > from_id and vote.id <= end_id
              and vote.voter_id in (held.from_voter_id, held.to_voter_id)
        ) as seen
        where voter_edit.id = p_edit;
        -- Nothing is left to rename, as when this one was done before: that is no refusal.
        update voter_edit
        set ended_at = clock_timestamp(), is_refused = voter_edit.has_votes,
            done_vote_id = case when voter_edit.has_votes then voter_edit.done_vote_id else end_id end
        where voter_edit.id = p_edit
          and (voter_edit.has_votes and voter_edit.is_taken
               or not voter_edit.has_votes and end_id >= held.until_vote_id);
        return;
    end if;

    -- 1. Find.
    select least(coalesce(min(vote.id) - 1, held.until_vote_id), held.until_vote_id) into from_id
    from vote_of_voter as vote where vote.id > held.done_vote_id;
    end_id := least(from_id + p_limit_ids, held.until_vote_id);
    select count(*), max(one.id), array_agg(distinct one.item_id),
           array_agg(distinct one.poll_id) filter (where one.poll_id is not null)
    into found_rows, last_found, found_items, found_polls
    from (
        select vote.id, vote.item_id, vote.poll_id from vote_of_voter as vote
        where vote.id > from_id and vote.id <= end_id and vote.voter_id = held.from_voter_id
        order by vote.id
        limit p_limit_rows
    ) as one;
    if found_rows = p_limit_rows then
        end_id := last_found;
    end if;

    if found_rows > 0 then
        -- 2. Lock, then look again: as in decide_votes.
        perform from rule
        where rule.id = any(array(select item.rule_id from item where item.id = any(found_items)))
        order by rule.id for no key update;
        -- Voters on items without a rule are not locked otherwise.
        perform pg_advisory_xact_lock(7416153283);
        found_items := array(
            select given.id from unnest(found_items) as given (id)
            union
            select vote.item_id from vote_of_voter as vote
            where vote.poll_id = any(found_polls) and vote.voter_id = held.from_voter_id);

        -- 3. Take back what one voter cannot hold twice. An erased voter's new id has no votes.
        if held.kind <> 'erase' then
            with own as materialized (
                select last.*
                from unnest(found_items) as given (id)
                cross join lateral (
                    select vote.id, vote.item_id, vote.value, vote.change_number, vote.poll_id
                    from vote_of_voter as vote where vote.item_id = given.id and vote.voter_id = held.from_voter_id
                    order by vote.item_id desc, vote.voter_id desc, vote.change_number desc limit 1
                ) as last
                where last.change_number % 2 = 0
            ), judged as materialized (
                select own.*,
                       (select count(*) % 2 = 1 from vote_of_voter as vote
                        where vote.item_id = own.item_id and vote.voter_id = held.to_voter_id) as is_held,
                       other.choices, rule.max_choices
                from own
                left join rule on rule.id = own.poll_id
                cross join lateral (
                    select coalesce(sum(1 - 2 * (vote.change_number % 2)), 0) as choices
                    from vote_of_voter as vote where vote.poll_id = own.poll_id and vote.voter_id = held.to_voter_id
                ) as other
            ), target as materialized (
                -- Behind the lock on `vote_of_voter`: see WorkerLedger::safe_vote_id.
                select ranked.*, nextval('vote_id_seq') as by_id
                from (
                    select judged.*,
                           judged.choices + count(*) filter (where not judged.is_held)
                               over (partition by judged.poll_id order by judged.id) as choices_then
                    from judged
                ) as ranked
                where ranked.is_held or ranked.choices_then > ranked.max_choices
            ), inserted as (
                insert into vote_of_voter (id, item_id, voter_id, value, change_number, poll_id)
                overriding system value
                select by_id, item_id, held.from_voter_id, -value, change_number + 1, poll_id from target
                returning id, item_id, value
            ), freed as (
                update place set taken = place.taken - 1
                from inserted where place.item_id = inserted.item_id
            ), turnout as (
                -- Two voters become one.
                update rule set voter_count = rule.voter_count - 1
                from (select distinct judged.poll_id from judged where judged.choices > 0) as shared
                where rule.id = shared.poll_id
            )
            select coalesce(array_agg(inserted.item_id), '{}'), coalesce(array_agg(inserted.value), '{}'),
                   coalesce(array_agg(case when inserted.value < 0 then 0 else -1 end), '{}'),
                   min(inserted.id)
            into items, nets, downs, lowest
            from inserted;
            perform vote_ids_are_new(lowest);
        end if;

        -- 4. The voter's rows get the other id, behind the rows that the other voter has there.
        for standing in
            select vote.id, own.total
            from (
                select given.id as item_id,
                       (select count(*) from vote_of_voter as vote
                        where vote.item_id = given.id and vote.voter_id = held.from_voter_id) as total,
                       (select count(*) from vote_of_voter as vote
                        where vote.item_id = given.id and vote.voter_id = held.to_voter_id) as others
                from unnest(found_items) as given (id)
            ) as own
            join vote_of_voter as vote on vote.item_id = own.item_id and vote.voter_id = held.to_voter_id
            -- The other voter holds a vote there: that stays the last row.
            where own.others % 2 = 1
            order by vote.item_id, vote.change_number desc
        loop
            update vote_of_voter as vote set change_number = vote.change_number + standing.total where vote.id = standing.id;
        end loop;
        with own as materialized (
            -- Counted once for each item, and not again for each row.
            select given.id as item_id,
                   (select count(*) from vote_of_voter as vote
                    where vote.item_id = given.id and vote.voter_id = held.to_voter_id) as others
            from unnest(found_items) as given (id)
        ), changed as (
            update vote_of_voter as vote
            set voter_id = held.to_voter_id,
                change_number = vote.change_number + case when own.others % 2 = 0 then own.others else 0 end
            from own
            where vote.item_id = own.item_id and vote.voter_id = held.from_voter_id
            returning vote.id
        ), forgotten as (
            -- From where an erased voter voted.
            delete from vote_address using changed
            where held.kind = 'erase' and vote_address.vote_id = changed.id
        )
        select count(*) into moved from changed;
    end if;

    -- 5. Note it.
    update voter_edit
    set done_vote_id = end_id, moved_rows = voter_edit.moved_rows + coalesce(moved, 0),
        -- One on each of these items.
        taken_back_votes = voter_edit.taken_back_votes + cardinality(items)
    where voter_edit.id = p_edit;
    if end_id >= held.until_vote_id then
        -- A voiding of a voter who was merged was not one of the other voter's votes.
        if held.kind <> 'merge' then
            update voiding set voter_id = held.to_voter_id where voiding.voter_id = held.from_voter_id;
        end if;
        -- What was done to the voter before.
        update voter_edit set to_voter_id = held.to_voter_id
        where voter_edit.to_voter_id = held.from_voter_id and not (voter_edit.is_refused and held.kind <> 'erase');
        if held.kind = 'erase' then
            -- Also under the ids that the voter had before. Such a voiding is not one of all the votes that are now
            -- the random id's, so it gets another one.
            update voiding set voter_id = 'erased-' || replace(gen_random_uuid()::text, '-', '')
            from voter_edit as earlier
            where earlier.to_voter_id = held.to_voter_id and earlier.id <> p_edit and not earlier.is_refused
              and voiding.voter_id = earlier.from_voter_id and voiding.created_at < earlier.ended_at;
            names := array(
                select voter_edit.from_voter_id from voter_edit
                where voter_edit.to_voter_id = held.to_voter_id and not voter_edit.is_refused
                union select held.from_voter_id);
            update voter_edit set from_voter_id = null, to_voter_id = held.to_voter_id
            where voter_edit.to_voter_id = held.to_voter_id
               or voter_edit.is_refused and (voter_edit.from_voter_id = any(names) or voter_edit.to_voter_id = any(names));
        end if;
        update voter_edit set ended_at = clock_timestamp() where voter_edit.id = p_edit;
    end if;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function edit_voter set search_path = %I, pg_temp', current_schema());
end $$;
-- A plan that is made while a table is empty must also suit a full table.
alter function edit_voter set enable_seqscan = off;
revoke execute on function edit_voter from public;
