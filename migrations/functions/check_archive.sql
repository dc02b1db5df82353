-- Notes that the file of an archive has the votes of the ledger, and keeps their sums. From then on they may be
-- dropped.
--
-- p_archive: the archive. p_hash, p_bytes: SHA-256 of the file, and its length. p_votes, p_net, p_first, p_last: the
-- rows that were read in it: how many, what their values add up to, and the lowest and the highest id (null: none).
-- Raises object_not_in_prerequisite_state if the archive was cancelled, or votes are not rolled up yet; and
-- data_corrupted if the ledger has other votes, or the archive was checked with another file.
-- Called by operators (`tally archive`). Locks: the archive.
create or replace function check_archive(
    p_archive bigint, p_hash bytea, p_bytes bigint, p_votes bigint, p_net bigint, p_first bigint, p_last bigint
) returns void
security definer
language plpgsql as $$
declare
    held archive%rowtype;
    found_rows record;
begin
    select * into strict held from archive where archive.id = p_archive for update;
    if held.cancelled_at is not null then
        raise exception 'archive % was cancelled', p_archive using errcode = 'object_not_in_prerequisite_state';
    end if;
    if held.checked_at is not null then
        if held.file_hash is distinct from p_hash then
            raise exception 'archive % was checked with another file', p_archive using errcode = 'data_corrupted';
        end if;
        return;
    end if;
    -- What is rolled up, saved and counted needs the votes no more. A worker may look for those of a server that died.
    if exists (select from watermark where watermark.saved_vote_id < held.until_vote_id)
       or exists (select from writer_connection where writer_connection.counted_vote_id < held.until_vote_id) then
        raise exception 'the votes of archive % are not all rolled up yet', p_archive
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    update archived_item
    set vote_total = summed.vote_total, vote_count = summed.net, down_count = summed.downs, held = summed.held,
        number_total = summed.numbers, last_number = summed.highest, bought = summed.bought
    from (
        select vote.item_id, count(*) as vote_total, sum(vote.value) as net,
               -- As in sum_votes.sql.
               count(*) filter (where vote.value < 0 and vote.change_number % 2 = 0)
               - count(*) filter (where vote.value > 0 and vote.change_number % 2 = 1) as downs,
               -- As in broken_rules.
               sum(1 - 2 * (vote.change_number % 2)) as held,
               count(vote.number) as numbers, coalesce(max(vote.number), 0) as highest,
               count(*) filter (where vote.change_number % 2 = 0 and again.vote_id is null) as bought
        from archived_item as one
        join vote on vote.item_id = one.item_id
        left join voided as again on again.again_vote_id = vote.id
        where one.archive_id = p_archive
        group by vote.item_id
    ) as summed
    where archived_item.item_id = summed.item_id and archived_item.archive_id = p_archive;
    update archived_rule
    set voter_count = summed.voters, most_choices = summed.most
    from (
        select one.poll_id,
               count(*) filter (where one.choices > 0 and one.voter_id is not null)
               + coalesce(sum(one.choices) filter (where one.voter_id is null), 0) as voters,
               coalesce(max(one.choices) filter (where one.voter_id is not null), 0) as most
        from (
            select vote.poll_id, vote.voter_id, sum(1 - 2 * (vote.change_number % 2)) as choices
            from archived_rule as of_archive join vote on vote.poll_id = of_archive.rule_id
            where of_archive.archive_id = p_archive
            group by vote.poll_id, vote.voter_id
        ) as one
        group by one.poll_id
    ) as summed
    where archived_rule.rule_id = summed.poll_id;
    select coalesce(sum(archived_item.vote_total), 0) as votes, coalesce(sum(archived_item.vote_count), 0) as net
    into found_rows
    from archived_item where archived_item.archive_id = p_archive;
    if (found_rows.votes, found_rows.net) is distinct from (p_votes::numeric, p_net::numeric) then
        raise exception 'the file of archive % has % votes with the sum %, and the ledger % with the sum %',
            p_archive, p_votes, p_net, found_rows.votes, found_rows.net
            using errcode = 'data_corrupted';
    end if;
    update archive
    set checked_at = clock_timestamp(), file_hash = p_hash, file_bytes = p_bytes, vote_total = p_votes,
        net_total = p_net, first_vote_id = p_first, last_vote_id = p_last, dropped_vote_id = coalesce(p_first - 1, 0)
    where archive.id = p_archive;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function check_archive set search_path = %I, pg_temp', current_schema());
end $$;
-- It reads the whole ledger, which a scan of the table does best. The connection's setting forbids one.
alter function check_archive set enable_seqscan = on;
revoke execute on function check_archive from public;
