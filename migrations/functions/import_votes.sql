-- Stores the next votes of an import, and notes how far it is. Places, numbers and choices are limited as for
-- other votes, and each voter's rows follow each other. Opening times and ballots do not matter: these votes were
-- cast before.
--
-- p_import: the import. p_after_line: the line up to which it is done. p_up_to_line: the same afterwards.
-- p_refused: how many lines in between were refused. Then an array for each column, with an entry for each vote,
-- in the order of the file: line, item, voter (null: anonymous), value, change number, when it was cast (µs since
-- 1970; null: now), number (null: the item's next one, if it numbers its votes).
-- Returns what was stored, or lines that cannot be stored, and why: then nothing is stored. Perhaps such a line can
-- be stored together with lines after these.
-- Raises object_not_in_prerequisite_state if another program has gone on with the import, and
-- serialization_failure if a voter voted meanwhile.
-- Called by operators (`tally import`).
-- Locks: the import; the rules of the items, in the order of their ids; the advisory lock 7416153283, shared; then the rows of `place` and `rule` that
-- it changes.
create or replace function import_votes(
    p_import bigint, p_after_line bigint, p_up_to_line bigint, p_refused bigint,
    p_lines bigint[], p_items bigint[], p_voters text[], p_values smallint[], p_changes smallint[],
    p_times bigint[], p_numbers bigint[],
    out xid bigint,
    out refused_lines bigint[], out whys text[],
    -- Votes that are new, and votes that were there already.
    out stored bigint, out repeated bigint,
    -- What the rows add to each item: to its count, and to its down-votes.
    out items bigint[], out nets bigint[], out downs bigint[]
)
security definer
language plpgsql as $$
#variable_conflict use_variable
declare
    done bigint;
    wanted bigint;
    lowest bigint;
begin
    select import.done_line into strict done from import where import.id = p_import for update;
    if done <> p_after_line then
        raise exception 'import % is done up to line %, and not up to %: another program goes on with it', p_import, done, p_after_line
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    -- Lock, then look: as in cast_votes.
    perform from rule
    where rule.id = any(array(select item.rule_id from item where item.id = any(p_items)))
    order by rule.id for no key update;
    -- As in decide_votes.
    perform pg_advisory_xact_lock_shared(7416153283);
    with line as materialized (
        select given.at, given.line, given.item_id, given.voter_id, given.value, given.change_number,
               coalesce(timestamptz 'epoch' + given.cast_at / 1000000 * interval '1 second'
                        + given.cast_at % 1000000 * interval '1 microsecond', now()) as cast_at,
               item.id is null as is_unknown, item.takes_down_votes, rule.archive_id is not null as is_archived,
               rule.id as rule_id, rule.by_ballot, rule.max_choices,
               case when rule.title is not null then rule.id end as poll_id,
               place.max_votes, place.taken, place.last_number,
               case when place.is_numbered and given.change_number % 2 = 0 then given.number end as number,
               -- What an undo cast again has no number.
               place.is_numbered and given.change_number = 0 and given.number is null as takes_next_number,
               -- The line that has the voter's row before this one.
               case when lag(given.change_number) over own = given.change_number - 1
                    then lag(given.value) over own end as value_before,
               given.voter_id is not null and (
                   coalesce(lag(given.change_number) over own = given.change_number, false)
                   or exists (
                       select from vote_of_voter as vote
                       where vote.item_id = given.item_id and vote.voter_id = given.voter_id
                         and vote.change_number = given.change_number)) as is_repeat
        from unnest(p_lines, p_items, p_voters, p_values, p_changes, p_times, p_numbers)
            with ordinality as given (line, item_id, voter_id, value, change_number, cast_at, number, at)
        left join item on item.id = given.item_id
        left join rule on rule.id = item.rule_id
        left join place on place.item_id = item.id
        window own as (partition by given.item_id, given.voter_id order by given.change_number, given.at)
    ), taking_turns as materialized (
        select line.*,
               -- A change or a selection is several rows of one time, in any order: what it takes back is free for what
               -- it casts.
               case when change_number % 2 = 1 then min(at) over same - 0.5 else at end as turn
        from line where not is_repeat
        window same as (partition by poll_id, case when poll_id is null then item_id end, voter_id, cast_at)
    ), judged as materialized (
        select one.*,
               case
                   when is_unknown then 'there is no such item'
                   when is_archived then 'the item takes no votes any more: its votes are archived'
                   when cast_at > now() then 'it was cast in the future'
                   when not takes_down_votes and (value < 0) = (change_number % 2 = 0) then 'the item takes no down-votes'
                   when voter_id is null and change_number > 0 then 'nobody knows which vote it takes back or casts again'
                   when change_number > 0 and coalesce(stored_before, value_before) is null
                       then 'the vote that it takes back or casts again is not there'
                   when change_number % 2 = 1 and coalesce(stored_before, value_before) <> -value
                       then 'the voter holds another vote than the one that it takes back'
                   when taken + sum(1 - 2 * (change_number % 2)) over (partition by item_id order by turn) > max_votes
                       then format('the item is full: it takes %s votes', max_votes)
                   when number <= last_number or number > last_number + count(number) over (partition by item_id)
                       then format('its number is %s, and the item''s last number is %s', number, last_number)
                   when number is not null and row_number() over (partition by item_id, number order by at) > 1
                       then format('another vote has the number %s', number)
                   when held + sum(1 - 2 * (change_number % 2)) over (partition by poll_id, voter_id order by turn) > max_choices
                       then format('the voter would hold more choices than %s', max_choices)
               end as why
        from (
            select taking_turns.*,
                   case when change_number > 0 then (
                       select vote.value from vote_of_voter as vote
                       where vote.item_id = taking_turns.item_id and vote.voter_id = taking_turns.voter_id
                         and vote.change_number = taking_turns.change_number - 1)
                   end as stored_before,
                   case when max_choices is not null and poll_id is not null and voter_id is not null then (
                       select coalesce(sum(1 - 2 * (vote.change_number % 2)), 0) from vote_of_voter as vote
                       where vote.poll_id = taking_turns.poll_id and vote.voter_id = taking_turns.voter_id)
                   end as held
            from taking_turns
        ) as one
    ), bad as materialized (
        -- What is refused may leave a place or a number to a later line: then only the first is sure.
        select faulty.line, faulty.why
        from (
            select judged.line, judged.at, judged.why,
                   row_number() over (partition by judged.item_id order by judged.at) = 1
                   and row_number() over (partition by judged.poll_id, judged.voter_id order by judged.at) = 1
                   or judged.poll_id is null and judged.number is null and judged.item_id <> all(given_back.items) as is_sure
            from judged, (
                select array(select distinct line.item_id from line where line.change_number % 2 = 1) as items
            ) as given_back
            where judged.why is not null
        ) as faulty
        where faulty.is_sure
        order by faulty.at
    ), target as materialized (
        -- Behind the lock on `vote`: see WorkerLedger::safe_vote_id.
        select nextval('vote_id_seq') as id, fresh.*
        from (
            select item_id, cast_at, value, change_number, voter_id, poll_id, rule_id, by_ballot,
                   coalesce(number, case when takes_next_number then
                       last_number + count(number) over (partition by item_id)
                       + row_number() over (partition by item_id, takes_next_number order by at) end) as number
            from judged where not exists (select from bad)
            order by at
        ) as fresh
    ), without_voter as (
        insert into vote (id, item_id, created_at, value, change_number, poll_id, number)
        overriding system value
        select id, item_id, cast_at, value, change_number, poll_id, number
        from target where voter_id is null
        returning id, item_id, value, change_number
    ), of_voters as (
        insert into vote_of_voter (id, item_id, created_at, value, change_number, voter_id, poll_id, number)
        overriding system value
        select id, item_id, cast_at, value, change_number, voter_id, poll_id, number
        from target where voter_id is not null
        -- In the order in which insert_plain_votes.sql takes the entries of vote_once.
        order by item_id, voter_id
        on conflict (item_id, voter_id, change_number) where voter_id is not null do nothing
        returning id, item_id, value, change_number
    ), inserted as (
        select id, item_id, value, change_number from without_voter
        union all
        select id, item_id, value, change_number from of_voters
    ), placed as (
        update place
        set taken = place.taken + given.held, last_number = greatest(place.last_number, given.last_number)
        from (
            select item_id, sum(1 - 2 * (change_number % 2)) as held, max(number) as last_number
            from target where rule_id is not null group by item_id
        ) as given
        where place.item_id = given.item_id
    ), turnout as (
        update rule
        set voter_count = rule.voter_count + coalesce(given.voters, 0),
            ballot_count = rule.ballot_count + given.ballots
        from (
            select one.rule_id, sum(one.voters) as voters, sum(one.ballots) as ballots
            from (
                select target.rule_id,
                       count(*) filter (where target.by_ballot and target.change_number % 2 = 0) as ballots,
                       case
                           when target.poll_id is null then 0
                           when target.voter_id is null then sum(1 - 2 * (target.change_number % 2))
                           else (select case when sum(1 - 2 * (target.change_number % 2)) + before.held > 0 then 1 else 0 end
                                        - case when before.held > 0 then 1 else 0 end
                                 -- Under the snapshot from before the insert.
                                 from (select coalesce(sum(1 - 2 * (vote.change_number % 2)), 0) as held from vote_of_voter as vote
                                       where vote.poll_id = target.poll_id and vote.voter_id = target.voter_id) as before)
                       end as voters
                from target where target.rule_id is not null
                group by target.rule_id, target.poll_id, target.voter_id
            ) as one
            group by one.rule_id
        ) as given
        where rule.id = given.rule_id and (given.voters <> 0 or given.ballots <> 0)
    )
    select array(select bad.line from bad), array(select bad.why from bad),
           (select count(*) from target), (select count(*) from line where is_repeat),
           coalesce(sum(one.total), 0), min(one.lowest), coalesce(array_agg(one.item_id), '{}'),
           coalesce(array_agg(one.net), '{}'), coalesce(array_agg(one.downs), '{}')
    into refused_lines, whys, wanted, repeated, stored, lowest, items, nets, downs
    from (
        select item_id, count(*) as total, min(id) as lowest, sum(value) as net,
               -- As in sum_votes.sql.
               count(*) filter (where value < 0 and change_number % 2 = 0)
               - count(*) filter (where value > 0 and change_number % 2 = 1) as downs
        from inserted group by item_id
    ) as one;
    if stored <> wanted then
        raise exception 'a voter of an import has voted meanwhile' using errcode = 'serialization_failure';
    end if;
    if refused_lines = '{}' then
        if lowest is not null then
            perform vote_ids_are_new(lowest);
        end if;
        update import
        set done_line = p_up_to_line,
            stored_votes = import.stored_votes + stored,
            repeated_votes = import.repeated_votes + repeated,
            refused_lines = import.refused_lines + p_refused
        where import.id = p_import;
    end if;
    xid := pg_current_xact_id()::text::bigint;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function import_votes set search_path = %I, pg_temp', current_schema());
end $$;
-- A plan that is made while a table is empty must also suit a full table.
alter function import_votes set enable_seqscan = off;
revoke execute on function import_votes from public;
