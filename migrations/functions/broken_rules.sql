-- Compares what the next rules store with the votes, for the audit. Both change in one transaction,
-- so this one statement, which has one snapshot, must find them equal at any time.
--
-- p_after: the rule after which it looks. p_limit_rules: the most rules that it looks at.
-- Returns the last rule that it looked at (null: there are no more), and what is wrong, in words.
-- Called by workers, with the owner's rights, since a worker may not read who voted. Locks nothing.
create or replace function broken_rules(p_after bigint, p_limit_rules int, out last bigint, out faults text[])
security definer
language sql stable as $$
    with page as materialized (
        select rule.*,
               -- Its votes are being dropped, or are gone: their sums are in archived_item and archived_rule.
               archive.checked_at is not null as is_archived, archive.ended_at is not null as is_dropped
        from rule left join archive on archive.id = rule.archive_id
        where rule.id > p_after order by rule.id limit p_limit_rules
    ), counted_item as materialized (
        select item.id as item_id, item.rule_id, page.is_archived, page.is_dropped
        from page join item on item.rule_id = page.id
        where page.by_ballot or page.is_archived or exists (select from place where place.item_id = item.id)
    ), in_ledger as materialized (
        -- One pass over the ledger for all of them: there is no index by item. None if there are no such items.
        select vote.item_id,
               count(*) as row_total,
               sum(1 - 2 * (vote.change_number % 2)) as held,
               count(vote.number) as numbers,
               max(vote.number) as highest,
               -- What is cast again after a voiding takes no further ballot.
               count(*) filter (where vote.change_number % 2 = 0 and again.vote_id is null) as bought
        from vote
        -- A join, since Postgres searches an array that a query makes entry by entry.
        join counted_item on counted_item.item_id = vote.item_id
        left join voided as again on again.again_vote_id = vote.id
        where exists (select from counted_item)
        group by vote.item_id
    ), counted as materialized (
        select in_ledger.item_id, in_ledger.held, in_ledger.numbers, in_ledger.highest, in_ledger.bought
        from in_ledger join counted_item on counted_item.item_id = in_ledger.item_id
        where not counted_item.is_archived
        union all
        select archived_item.item_id, archived_item.held, archived_item.number_total, archived_item.last_number,
               archived_item.bought
        from archived_item join counted_item on counted_item.item_id = archived_item.item_id
        where counted_item.is_archived
    ), item_fault as (
        select format('item %s: %s places are taken, and %s votes are held', place.item_id, place.taken, coalesce(counted.held, 0)) as fault
        from counted_item
        join place on place.item_id = counted_item.item_id
        left join counted on counted.item_id = place.item_id
        where place.taken <> coalesce(counted.held, 0)
        union all
        select format('item %s: %s votes are held, and it takes %s', place.item_id, place.taken, place.max_votes)
        from page
        join item on item.rule_id = page.id
        join place on place.item_id = item.id
        where place.taken > place.max_votes
        union all
        select format('item %s: the last number is %s, and there are %s numbers up to %s',
                      place.item_id, place.last_number, coalesce(counted.numbers, 0), coalesce(counted.highest, 0))
        from counted_item
        join place on place.item_id = counted_item.item_id
        left join counted on counted.item_id = place.item_id
        -- No number is there twice: the index vote_number is unique.
        where coalesce(counted.numbers, 0) <> place.last_number or coalesce(counted.highest, 0) <> place.last_number
        union all
        -- All its votes are below the watermark.
        select format('item %s: its archived votes add up to %s with %s down-votes, and its audited count is %s with %s',
                      archived_item.item_id, archived_item.vote_count, archived_item.down_count,
                      coalesce(audited_count.vote_count, 0), coalesce(audited_count.down_count, 0))
        from counted_item
        join archived_item on archived_item.item_id = counted_item.item_id
        left join audited_count on audited_count.item_id = counted_item.item_id
        where counted_item.is_archived
          and (archived_item.vote_count, archived_item.down_count)
              is distinct from (coalesce(audited_count.vote_count, 0), coalesce(audited_count.down_count, 0))
        union all
        select format('item %s: its votes are archived, and the ledger has %s', counted_item.item_id, in_ledger.row_total)
        from counted_item join in_ledger on in_ledger.item_id = counted_item.item_id
        where counted_item.is_dropped
    ), turnout as materialized (
        select page.id, page.max_choices, page.voter_count, voters.total, voters.most
        from page
        cross join lateral (
            select count(*) filter (where one.choices > 0 and one.voter_id is not null)
                   + coalesce(sum(one.choices) filter (where one.voter_id is null), 0) as total,
                   max(one.choices) filter (where one.voter_id is not null) as most
            from (
                select vote.voter_id, sum(1 - 2 * (vote.change_number % 2)) as choices
                from vote where vote.poll_id = page.id
                group by vote.voter_id
            ) as one
        ) as voters
        where page.title is not null and not page.is_archived
        union all
        select page.id, page.max_choices, page.voter_count, archived_rule.voter_count, archived_rule.most_choices
        from page join archived_rule on archived_rule.rule_id = page.id
        where page.title is not null and page.is_archived
    ), poll_fault as (
        select format('poll %s: a voter holds %s choices, and may hold %s', turnout.id, turnout.most, turnout.max_choices) as fault
        from turnout where turnout.most > turnout.max_choices
        union all
        select format('poll %s: the turnout is %s, and %s voters hold a choice', turnout.id, turnout.voter_count, turnout.total)
        from turnout where turnout.voter_count <> turnout.total
    ), ballot_fault as (
        select format('rule %s: %s ballots are spent, and %s votes were cast', page.id, spent.total, bought.total) as fault
        from page
        cross join lateral (
            -- Of secret rules, spent ballots are deleted.
            select page.ballot_count - count(*) as total
            from ballot where ballot.rule_id = page.id and ballot.vote_id is null
        ) as spent
        cross join lateral (
            select coalesce(sum(counted.bought), 0) as total
            from counted_item join counted on counted.item_id = counted_item.item_id
            where counted_item.rule_id = page.id
        ) as bought
        where page.by_ballot and spent.total <> bought.total
    )
    select (select max(id) from page),
           array(select fault from item_fault union all select fault from poll_fault union all select fault from ballot_fault)
$$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function broken_rules set search_path = %I, pg_temp', current_schema());
end $$;
-- It reads the whole ledger, which a scan of the table does best. The connection's setting forbids one.
alter function broken_rules set enable_seqscan = on;
revoke execute on function broken_rules from public;
