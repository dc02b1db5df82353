-- Decides and stores votes: see cast_votes, which calls it and which servers call.
--
-- Lock, look, decide, write. A batch that decides under the same rules waits at the lock. The look is
-- a statement of its own after the lock, so its snapshot has all that was decided before. Voters on
-- items without a rule are not locked. If two batches decide for one voter there at the same time, the
-- index vote_once lets one of them in, and the other answers `again`.
--
-- Arguments: a line is one item of a request. Neighbouring lines with the same number are one request,
-- which is granted as a whole or not at all. Of two requests of one voter under one rule (or on one
-- item without a rule), the second is answered `again`; so is the second with one ballot or key.
-- Returns an outcome for each request, and the rows of votes; xid is the transaction's id.
-- Called by cast_votes alone: no role may call it.
-- Locks: the requests' rules, in the order of their ids; the advisory lock 7416153283, shared; then the idempotency keys, in the order of
-- their hashes; then the rows of `place`, `rule`, `ballot` and `idempotency_key` that it changes.
create or replace function decide_votes(
    -- 1, 2, and so on.
    p_request int[],
    -- Set: the request is about this poll. Null: about the item alone.
    p_poll    bigint[],
    -- Null: no item; the request names none.
    p_item    bigint[],
    p_voter   text[],
    -- What the voter wants to hold on the item: 1, −1, or 0 for nothing.
    p_value   smallint[],
    -- Whether a vote that is held stays as it is, whatever its value.
    p_keep    boolean[],
    -- Whether the voter wants to hold nothing else in the poll.
    p_whole   boolean[],
    -- SHA-256 of the ballot's token; null: none.
    p_ballot  bytea[] default null,
    -- SHA-256 of the request's idempotency key and of what it asks; null: no key.
    p_key     bytea[] default null,
    p_body    bytea[] default null,
    out xid      bigint,
    -- One for each request, in order: stored, secret (stored, and nobody learns its row), repeated
    -- (nothing to be stored), replayed (stored before, with this key), again, unknown_item,
    -- unknown_poll, not_in_poll, no_voter, not_open, closed, value, full, choices (too many),
    -- changes (too many), key_reused (with another body), no_key (a secret vote takes none),
    -- no_ballot, ballot (it is not valid), ballot_unwanted, voter_unwanted.
    out outcomes text[],
    -- One for each row that was stored, and for each vote that a repeated request finds.
    out row_requests int[],
    out row_items    bigint[],
    out row_values   smallint[],
    out row_changes  smallint[],
    out row_numbers  bigint[],
    -- Null: the row was not stored, since another batch was first.
    out row_ids      bigint[],
    out row_is_new   boolean[],
    -- The items among these whose counts only their poll shows, perhaps more than once; null: none.
    out hidden_items bigint[]
)
-- With the owner's rights: a server's login stores no change and no retraction by itself, and
-- writes no place or ballot.
security definer
language plpgsql as $$
#variable_conflict use_variable
declare
    -- A voter changes a vote on one item this often at the most; change_number is a smallint.
    changes_limit constant int := 1000;
    -- Places of an item that takes any number of votes: more than there can be.
    unlimited constant bigint := 1000000000000000000;
    rules bigint[];
    -- Places of the rules' items, in the order of item ids: how many are left, and the last
    -- number, null where votes are not numbered.
    places bigint[];
    free bigint[];
    numbers bigint[];
    ask record;
    why text;
    n int := 0;          -- rows so far
    first int;           -- rows before this request
    at int;
    held smallint;
    change smallint;
    choices int;         -- of the poll, held by the voter
    had int;
    row_polls bigint[] := '{}';
    row_voters text[] := '{}';
    turnout_rules bigint[] := '{}';
    turnout int[] := '{}';
    stored bigint[];
    claimed bytea[] := '{}';
    row_ballots bytea[] := '{}';
    row_secret boolean[] := '{}';
begin
    outcomes := array_fill(null::text, array[(select max(given.request) from unnest(p_request) as given (request))]);
    row_requests := '{}'; row_items := '{}'; row_values := '{}'; row_changes := '{}';
    row_numbers := '{}'; row_ids := '{}'; row_is_new := '{}';

    -- 1. Lock, in one order. Nulls go out only here: `rule_id is not null` would let the planner
    -- go through all of the index item_of_rule instead of looking the items up.
    rules := array_remove(array(
        select item.rule_id from item where item.id = any(p_item)
        union
        select given.poll from unnest(p_poll) as given (poll)
        order by 1), null);
    perform from rule where id = any(rules) order by id for no key update;
    -- An edit of a voter (edit_voter) is not between what is read here and what is written. Decisions share this lock.
    perform pg_advisory_xact_lock_shared(7416153283);
    -- Then the keys, in one order too. One that another batch is just using is waited for.
    if p_key is not null then
        with claim as (
            insert into idempotency_key (key_hash, body_hash)
            select distinct on (given.key) given.key, given.body
            from unnest(p_request, p_key, p_body) as given (request, key, body)
            where given.key is not null
            order by given.key, given.request
            on conflict (key_hash) do nothing
            returning key_hash
        )
        select coalesce(array_agg(key_hash), '{}') into claimed from claim;
    end if;

    -- 2. Look.
    select array_agg(place.item_id order by place.item_id),
           array_agg(coalesce(place.max_votes - place.taken, unlimited) order by place.item_id),
           array_agg(case when place.is_numbered then place.last_number end order by place.item_id)
    into places, free, numbers
    from item join place on place.item_id = item.id
    where item.rule_id = any(rules);

    for ask in
        select given.*, past.*, found.*,
               case when given.key_turn > 1 then 'again'
                    when kept.body_hash <> given.body then 'key_reused'
                    -- Nobody knows any more what its voter holds there.
                    when given.is_archived then 'closed'
                    when kept.vote_id is not null then case when kept.is_repeat then 'repeated' else 'replayed' end
                    when given.poll is not null and given.is_poll is not true then 'unknown_poll'
                    when given.lacks_item then 'unknown_item'
                    when given.poll is not null and given.strays then 'not_in_poll'
                    when given.is_secret and given.key is not null then 'no_key'
                    when given.by_ballot and given.ballot is null then 'no_ballot'
                    when given.by_ballot and given.voter is not null then 'voter_unwanted'
                    when given.by_ballot is not true and given.ballot is not null then 'ballot_unwanted'
                    when given.is_poll and given.voter is null and not given.by_ballot then 'no_voter'
                    when given.turn > 1 then 'again'
                    when given.is_wrong_value then 'value'
                    when given.by_ballot and (
                        spent.rule_id is distinct from given.rule_id
                        or spent.vote_id is null and spent.expires_at <= clock_timestamp()
                        or found.found_item <> given.items[1] or found.found_value <> given.wanted[1]) then 'ballot'
                    when spent.vote_id is not null then 'repeated'
               end as refusal,
               -- Only for what would be stored: what is held already is repeated at any time.
               case when clock_timestamp() < given.opens_at then 'not_open'
                    when clock_timestamp() >= given.closes_at then 'closed'
               end as untimely
        from (
            select line.request,
                   min(line.poll) as poll,
                   coalesce(array_agg(line.item order by line.position) filter (where line.item is not null), '{}') as items,
                   array_agg(line.value order by line.position) filter (where line.item is not null) as wanted,
                   min(line.voter) as voter,
                   bool_or(line.keep) as keeps,
                   bool_or(line.whole or rule.max_choices = 1 and line.value <> 0) as is_whole,
                   min(rule.id) as rule_id,
                   bool_or(rule.title is not null) as is_poll,
                   min(rule.max_choices) as max_choices,
                   min(rule.opens_at) as opens_at,
                   min(rule.closes_at) as closes_at,
                   bool_or(line.item is not null and item.id is null) as lacks_item,
                   bool_or(line.item is not null and item.rule_id is distinct from line.poll) as strays,
                   bool_or(line.value < 0 and not item.takes_down_votes) as is_wrong_value,
                   bool_or(not rule.shows_results) as hides_counts,
                   bool_or(rule.by_ballot) as by_ballot,
                   bool_or(rule.is_secret) as is_secret,
                   bool_or(rule.archive_id is not null) as is_archived,
                   (array_agg(line.ballot))[1] as ballot,
                   (array_agg(line.key))[1] as key,
                   (array_agg(line.body))[1] as body,
                   case when (array_agg(line.key))[1] is not null then
                       row_number() over (partition by (array_agg(line.key))[1] order by line.request)
                   end as key_turn,
                   -- Anonymous requests are not each other's next ones.
                   row_number() over (
                       partition by min(rule.id), case when min(rule.id) is null then min(line.item) end,
                                    coalesce(min(line.voter), encode((array_agg(line.ballot))[1], 'hex'), line.request::text),
                                    min(line.voter) is null
                       order by line.request) as turn
            from unnest(p_request, p_poll, p_item, p_voter, p_value, p_keep, p_whole, p_ballot, p_key, p_body)
                 with ordinality
                 as line (request, poll, item, voter, value, keep, whole, ballot, key, body, position)
            left join item on item.id = line.item
            left join rule on rule.id = coalesce(line.poll, item.rule_id)
            group by line.request
        ) as given
        -- The voter's last row on the item, or on each of the poll's items.
        left join lateral (
            select array_agg(entry.item_id order by entry.item_id) as past_items,
                   array_agg(entry.value order by entry.item_id) as past_values,
                   array_agg(entry.change_number order by entry.item_id) as past_changes,
                   array_agg(entry.number order by entry.item_id) as past_numbers,
                   array_agg(entry.id order by entry.item_id) as past_ids
            from (
                (select one.item_id, one.value, one.change_number, one.number, one.id
                 from vote_of_voter as one
                 where given.is_poll is not true
                   and one.item_id = given.items[1] and one.voter_id = given.voter
                 order by one.item_id desc, one.voter_id desc, one.change_number desc
                 limit 1)
                union all
                (select distinct on (many.item_id)
                        many.item_id, many.value, many.change_number, many.number, many.id
                 from vote_of_voter as many
                 where given.is_poll and many.poll_id = given.rule_id and many.voter_id = given.voter
                 order by many.item_id desc, many.change_number desc)
            ) as entry
        ) as past on given.voter is not null
        -- What the key was used for before this batch.
        left join lateral (
            select one.body_hash, one.vote_id, one.is_repeat
            from idempotency_key as one
            where one.key_hash = given.key and one.key_hash <> all(claimed)
            limit 1
        ) as kept on given.key is not null
        left join lateral (
            select one.rule_id, one.expires_at, one.vote_id
            from ballot as one
            where one.token_hash = given.ballot
            limit 1
        ) as spent on given.ballot is not null
        -- The vote that the key or the ballot has bought.
        left join lateral (
            select one.id as found_id, one.item_id as found_item, one.value as found_value,
                   one.change_number as found_change, one.number as found_number
            from vote as one
            where one.id = coalesce(kept.vote_id, spent.vote_id)
            limit 1
        ) as found on true
        -- Secret votes: in no order, so that the rows of a batch do not say whose they are.
        -- Without a rule: in the order in which insert_plain_votes.sql takes the entries of vote_once.
        order by given.rule_id,
                 case when given.rule_id is null then given.items[1] end,
                 case when given.rule_id is null then given.voter end,
                 case when given.is_secret then random() end,
                 given.request
    loop
        -- 3. Decide. What is held and not wanted is taken back; what is wanted and not held is
        -- cast. Even change numbers cast a vote, and the odd one after it takes it back.
        why := ask.refusal;
        first := n;
        choices := 0;
        if ask.hides_counts then hidden_items := hidden_items || ask.items; end if;
        if why is null then
            for i in 1 .. cardinality(ask.items) loop
                at := width_bucket(ask.items[i], ask.past_items);
                if at > 0 and ask.past_items[at] = ask.items[i] then
                    change := ask.past_changes[at];
                    held := case when change % 2 = 0 then ask.past_values[at] else 0 end;
                else
                    change := -1;
                    held := 0;
                end if;
                if ask.wanted[i] = held or ask.wanted[i] <> 0 and held <> 0 and ask.keeps then
                    continue;
                end if;
                if held <> 0 then
                    change := change + 1;
                    n := n + 1;
                    row_items[n] := ask.items[i]; row_values[n] := -held; row_changes[n] := change;
                end if;
                if ask.wanted[i] <> 0 then
                    change := change + 1;
                    if change >= changes_limit then why := 'changes'; end if;
                    n := n + 1;
                    row_items[n] := ask.items[i]; row_values[n] := ask.wanted[i]; row_changes[n] := change;
                end if;
            end loop;
            if ask.is_poll and ask.past_items is not null then
                for i in 1 .. cardinality(ask.past_items) loop
                    if ask.past_changes[i] % 2 = 0 then
                        choices := choices + 1;
                        if ask.is_whole and ask.past_items[i] <> all(ask.items) then
                            n := n + 1;
                            row_items[n] := ask.past_items[i];
                            row_values[n] := -ask.past_values[i];
                            row_changes[n] := ask.past_changes[i] + 1;
                        end if;
                    end if;
                end loop;
            end if;
            had := choices;
            for i in first + 1 .. n loop
                choices := choices + 1 - 2 * (row_changes[i] % 2);
            end loop;
            if why is null and n = first then
                why := 'repeated';
            elsif ask.untimely is not null then
                why := ask.untimely;
            elsif why is null and choices > ask.max_choices then
                why := 'choices';
            end if;
        end if;
        -- Of a request that is not granted nothing stays. So each item's places are looked at
        -- before any of them is taken: an item is in a request once.
        if why is null and places is not null then
            for i in first + 1 .. n loop
                at := width_bucket(row_items[i], places);
                -- A change gives its place back and takes it again.
                if row_changes[i] % 2 = 0 and at > 0 and places[at] = row_items[i] and free[at] <= 0
                   and not (i > first + 1 and row_items[i - 1] = row_items[i]) then
                    why := 'full';
                end if;
            end loop;
        end if;
        outcomes[ask.request] := coalesce(why, case when ask.is_secret then 'secret' else 'stored' end);
        if why is not null then
            n := first;
            if why in ('repeated', 'replayed') and ask.found_id is not null then
                n := n + 1;
                row_requests[n] := ask.request; row_is_new[n] := false;
                row_items[n] := ask.found_item; row_values[n] := ask.found_value;
                row_changes[n] := ask.found_change; row_numbers[n] := ask.found_number;
                row_ids[n] := ask.found_id;
                row_polls[n] := null; row_voters[n] := null; row_ballots[n] := null; row_secret[n] := false;
            elsif why = 'repeated' and ask.past_items is not null then
                for i in 1 .. cardinality(ask.past_items) loop
                    if ask.past_changes[i] % 2 = 0 and ask.past_items[i] = any(ask.items) then
                        n := n + 1;
                        row_requests[n] := ask.request; row_is_new[n] := false;
                        row_items[n] := ask.past_items[i]; row_values[n] := ask.past_values[i];
                        row_changes[n] := ask.past_changes[i]; row_numbers[n] := ask.past_numbers[i];
                        row_ids[n] := ask.past_ids[i];
                        row_polls[n] := null; row_voters[n] := null; row_ballots[n] := null; row_secret[n] := false;
                    end if;
                end loop;
            end if;
            continue;
        end if;
        for i in first + 1 .. n loop
            row_requests[i] := ask.request; row_is_new[i] := true;
            row_polls[i] := case when ask.is_poll then ask.rule_id end;
            row_voters[i] := ask.voter; row_ballots[i] := ask.ballot; row_secret[i] := coalesce(ask.is_secret, false);
            row_numbers[i] := null; row_ids[i] := null;
            at := width_bucket(row_items[i], places);
            if at > 0 and places[at] = row_items[i] then
                free[at] := free[at] - 1 + 2 * (row_changes[i] % 2);
                if row_changes[i] % 2 = 0 then
                    numbers[at] := numbers[at] + 1;
                    row_numbers[i] := numbers[at];
                end if;
            end if;
        end loop;
        if ask.is_poll and (had = 0) <> (choices = 0) then
            turnout_rules := array_append(turnout_rules, ask.rule_id);
            turnout := array_append(turnout, sign(choices - had)::int);
        end if;
    end loop;

    -- 4. Write. Rows that were taken away again may still be behind the last one.
    row_requests := row_requests[1:n]; row_items := row_items[1:n]; row_values := row_values[1:n];
    row_changes := row_changes[1:n]; row_numbers := row_numbers[1:n]; row_ids := row_ids[1:n];
    row_is_new := row_is_new[1:n]; row_polls := row_polls[1:n]; row_voters := row_voters[1:n];
    row_ballots := row_ballots[1:n]; row_secret := row_secret[1:n];
    if true = any(row_is_new) then
        with added as materialized (
            -- The ids are drawn here, behind the lock on `vote`: see WorkerLedger::safe_vote_id.
            select entry.*, case when entry.is_new then nextval('vote_id_seq') else entry.past_id end as id
            from unnest(row_items, row_voters, row_values, row_changes, row_polls, row_numbers, row_is_new, row_ids)
                 with ordinality
                 as entry (item_id, voter_id, value, change_number, poll_id, number, is_new, past_id, position)
        ), without_voter as (
            insert into vote (id, item_id, value, change_number, poll_id, number)
            overriding system value
            select id, item_id, value, change_number, poll_id, number
            from added where is_new and voter_id is null order by position
            returning id
        ), of_voters as (
            insert into vote_of_voter (id, item_id, voter_id, value, change_number, poll_id, number)
            overriding system value
            select id, item_id, voter_id, value, change_number, poll_id, number
            from added where is_new and voter_id is not null order by position
            on conflict (item_id, voter_id, change_number) where voter_id is not null do nothing
            returning id
        ), inserted as (
            select id from without_voter union all select id from of_voters
        )
        select array_agg(added.id order by position), (select array_agg(id) from inserted)
        into row_ids, stored
        from added;
        perform vote_ids_are_new((select min(id) from unnest(stored) as inserted (id)));
        if cardinality(stored) is distinct from cardinality(array_positions(row_is_new, true)) then
            -- Another batch was first with some rows of voters on items without a rule.
            row_ids := array(
                select case when entry.is_new and entry.id <> all(coalesce(stored, '{}')) then null else entry.id end
                from unnest(row_ids, row_is_new) with ordinality as entry (id, is_new, position)
                order by position);
            for i in 1 .. n loop
                if row_ids[i] is null then outcomes[row_requests[i]] := 'again'; end if;
            end loop;
        end if;
        update place
        set taken = place.taken + given.taken,
            last_number = place.last_number + given.numbers
        from (
            select entry.item_id, sum(1 - 2 * (entry.change_number % 2)) as taken, count(entry.number) as numbers
            from unnest(row_items, row_changes, row_numbers, row_is_new)
                 as entry (item_id, change_number, number, is_new)
            where entry.is_new and entry.item_id = any(places)
            group by entry.item_id
        ) as given
        where place.item_id = given.item_id;
    end if;
    if cardinality(turnout) > 0 then
        update rule
        set voter_count = rule.voter_count + given.change
        from (
            select one.id, sum(one.change) as change
            from unnest(turnout_rules, turnout) as one (id, change)
            group by one.id
        ) as given
        where rule.id = given.id;
    end if;
    if p_ballot is not null then
        update ballot set vote_id = bought.vote_id
        from unnest(row_ballots, row_ids, row_is_new, row_secret) as bought (token_hash, vote_id, is_new, is_secret)
        where ballot.token_hash = bought.token_hash and bought.is_new and not bought.is_secret;
        delete from ballot
        using unnest(row_ballots, row_is_new, row_secret) as bought (token_hash, is_new, is_secret)
        where ballot.token_hash = bought.token_hash and bought.is_new and bought.is_secret;
    end if;
    if cardinality(claimed) > 0 then
        update idempotency_key set vote_id = used.vote_id, is_repeat = not used.is_new
        from (
            select line.key, entry.vote_id, entry.is_new
            from unnest(row_requests, row_ids, row_changes, row_is_new) as entry (request, vote_id, change_number, is_new)
            join unnest(p_request, p_key) as line (request, key) on line.request = entry.request
            -- A move in a poll takes a vote back too.
            where line.key = any(claimed) and entry.change_number % 2 = 0
        ) as used
        where idempotency_key.key_hash = used.key;
        -- What stores nothing may be asked again with its key.
        delete from idempotency_key where key_hash = any(claimed) and vote_id is null;
    end if;
    xid := pg_current_xact_id()::text::bigint;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function decide_votes set search_path = %I, pg_temp', current_schema());
end $$;
-- A plan that is made while a table is empty must also suit a full table.
alter function decide_votes set enable_seqscan = off;
revoke execute on function decide_votes from public;
