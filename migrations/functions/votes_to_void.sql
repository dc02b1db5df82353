-- Finds the next votes that a voiding takes back: held votes that the voiding concerns, and that no archive has.
--
-- p_voter, p_item, p_from, p_until, p_addresses, p_api_key: which votes, as in `voiding`. p_after: it looks beyond
-- this vote. p_until_vote: it looks up to this vote.
-- Returns the votes, and up to which id it has looked.
-- Called by void_votes, and by `tally void` to show what a voiding would do. Locks nothing.
create or replace function votes_to_void(
    p_voter text, p_item bigint, p_from timestamptz, p_until timestamptz, p_addresses bytea[],
    p_api_key bigint,
    p_after bigint, p_until_vote bigint,
    -- Votes that are found, and ids that are looked at, at the most.
    p_limit_votes int, p_limit_ids bigint,
    out up_to bigint, out ids bigint[]
)
language plpgsql as $$
#variable_conflict use_variable
declare
    seen int;
    -- No vote lies between p_after and this one: a sequence may have been set far ahead.
    from_id bigint := p_after;
    -- The votes of the API key, among those that are looked at. Null: it does not matter.
    of_key int8multirange;
begin
    if p_addresses is null then
        select least(coalesce(min(vote.id) - 1, p_until_vote), p_until_vote) into from_id
        from vote where vote.id > p_after;
    else
        select least(coalesce(min(vote_address.vote_id) - 1, p_until_vote), p_until_vote) into from_id
        from vote_address where vote_address.vote_id > p_after;
    end if;
    if p_api_key is not null then
        select coalesce(range_agg(part.ids), '{}') into of_key
        from vote_api_key, unnest(vote_api_key.vote_ids) as part (ids)
        where vote_api_key.block between from_id / 4096 and least(from_id + p_limit_ids, p_until_vote) / 4096
          and vote_api_key.api_key_id = p_api_key;
    end if;
    if isempty(of_key) then
        up_to := least(from_id + p_limit_ids, p_until_vote);
        ids := '{}';
        return;
    end if;
    if p_addresses is not null then
        select array_agg(one.id), count(*), max(one.id) into ids, seen, up_to
        from (
            select vote.id
            from vote_address join vote on vote.id = vote_address.vote_id
            where vote_address.vote_id > from_id
              and vote_address.vote_id <= least(from_id + p_limit_ids, p_until_vote)
              and vote_address.address_hash = any(p_addresses)
              and vote.change_number % 2 = 0
              and (p_item is null or vote.item_id = p_item)
              and (p_voter is null or vote.voter_id = p_voter)
              and (p_from is null or vote.created_at >= p_from)
              and (p_until is null or vote.created_at < p_until)
              and (of_key is null or of_key @> vote.id)
            order by vote_address.vote_id
            limit p_limit_votes
        ) as one;
        if seen < p_limit_votes then up_to := least(from_id + p_limit_ids, p_until_vote); end if;
    else
        select array_agg(one.id), count(*), max(one.id) into ids, seen, up_to
        from (
            select vote.id from vote
            where vote.id > from_id and vote.id <= least(from_id + p_limit_ids, p_until_vote)
              and vote.change_number % 2 = 0
              and (p_item is null or vote.item_id = p_item)
              and (p_voter is null or vote.voter_id = p_voter)
              and (p_from is null or vote.created_at >= p_from)
              and (p_until is null or vote.created_at < p_until)
              and (of_key is null or of_key @> vote.id)
            order by vote.id
            limit p_limit_votes
        ) as one;
        if seen < p_limit_votes then up_to := least(from_id + p_limit_ids, p_until_vote); end if;
    end if;
    ids := array(
        select vote.id from vote
        where vote.id = any(ids)
          and not exists (select from voided where voided.vote_id = vote.id)
          and not exists (select from archived_item where archived_item.item_id = vote.item_id)
          -- Of a vote without a voter, only a voiding is the end.
          and not exists (
              select from vote_of_voter as next
              where next.item_id = vote.item_id and next.voter_id = vote.voter_id
                and next.change_number = vote.change_number + 1)
        order by vote.id);
end $$;

revoke execute on function votes_to_void from public;
