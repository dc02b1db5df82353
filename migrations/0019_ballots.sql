-- Ballots: one-time tokens, each of which buys one vote. And idempotency keys, each of which
-- stores its vote once.
alter table rule
    -- Whether each vote takes a ballot. Such votes have no voter.
    add column by_ballot    boolean not null default false,
    -- Whether nothing that is kept says which ballot bought which vote.
    add column is_secret    boolean not null default false,
    -- How many ballots were made for the rule.
    add column ballot_count bigint not null default 0,
    add constraint rule_secret_takes_ballots check (by_ballot or not is_secret),
    -- A ballot buys one vote, so it cannot buy several choices.
    add constraint rule_ballot_is_one_choice check (not by_ballot or title is null or max_choices = 1);

create table ballot (
    -- SHA-256 of the token's text. The token itself is shown once and kept nowhere.
    token_hash bytea primary key
               constraint ballot_token_hash_length check (octet_length(token_hash) = 32),
    rule_id    bigint not null references rule,
    -- The ballot buys a vote until then. Null: no limit.
    expires_at timestamptz,
    -- The vote that it bought; null: none yet. Where the rule is secret, the row is deleted instead.
    vote_id    bigint
);
-- For the audit of a rule's ballots.
create index ballot_of_rule on ballot (rule_id);

-- Adds ballots to a rule that takes them; says whether it does. Servers write no rule by themselves.
create function add_ballots(p_rule bigint, p_token_hashes bytea[], p_expires_at timestamptz) returns boolean
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

create table idempotency_key (
    -- SHA-256 of what the key is for, and the key.
    key_hash   bytea primary key
               constraint idempotency_key_hash_length check (octet_length(key_hash) = 32),
    -- SHA-256 of what was asked with it.
    body_hash  bytea not null,
    -- The vote that it stored or that its voter held. Null: the key is of a whole batch, whose
    -- votes have keys of their own.
    vote_id    bigint,
    -- Whether the voter held that vote already.
    is_repeat  boolean not null default false,
    -- The worker deletes it a day later.
    created_at timestamptz not null default now()
);
create index idempotency_key_age on idempotency_key (created_at);

do $$ begin
    execute format('alter function add_ballots set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function add_ballots from public;
