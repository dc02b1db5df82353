-- Adds ballots to a rule that takes them.
--
-- p_rule: the rule. p_token_hashes: SHA-256 of each ballot's token. p_expires_at: the ballots buy votes
-- until then; null: no limit.
-- Returns whether the rule exists and takes ballots.
-- Called by servers, which may not write to `rule` and `ballot` themselves. Locks: the rule.
create or replace function add_ballots(p_rule bigint, p_token_hashes bytea[], p_expires_at timestamptz) returns boolean
security definer
language plpgsql as $$
begin
    update rule set ballot_count = ballot_count + cardinality(p_token_hashes)
    where id = p_rule and by_ballot;
    if not found then return false; end if;
    insert into ballot (token_hash, rule_id, expires_at)
    select token_hash, p_rule, p_expires_at from unnest(p_token_hashes) as given (token_hash);
    return true;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function add_ballots set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function add_ballots from public;
