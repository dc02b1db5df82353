-- Who may do what, and the trail of what was done.

-- API keys: for administration, for votes on behalf of voters, and for reports.
create table api_key (
    id           bigint generated always as identity primary key,
    -- SHA-256 of the key's text. The text itself is shown once and kept nowhere.
    key_hash     bytea not null unique
                 constraint api_key_hash_length check (octet_length(key_hash) = 32),
    -- For its operator: whose it is, or where it is used.
    name         text not null
                 constraint api_key_name_length check (char_length(name) between 1 and 100),
    -- What it allows.
    scopes       text[] not null
                 constraint api_key_scopes
                 check (cardinality(scopes) > 0 and scopes <@ array['vote', 'admin', 'report']),
    created_at   timestamptz not null default now(),
    -- The key is not valid from then on. Null: no limit.
    expires_at   timestamptz,
    -- When a server last looked it up, at most a minute late. Null: never.
    last_used_at timestamptz,
    -- The key is not valid since then. Null: it is not revoked.
    revoked_at   timestamptz
);

-- What callers without a credential may do with one item on a closed server.
create table open_item (
    item_id      bigint primary key references item,
    -- Whether anyone may vote on it without a voter.
    to_anonymous boolean not null,
    -- Whether anyone may vote on it as any voter.
    to_voters    boolean not null
);

-- The same for a poll and all of its choices. A poll takes votes from voters only.
create table open_poll (
    poll_id   bigint primary key references rule,
    -- Whether anyone may vote in it as any voter.
    to_voters boolean not null
);

-- The trail: a row for each administrative act, which nobody changes or deletes. Only `note_act`
-- writes it.
create table act (
    id         bigint generated always as identity primary key,
    acted_at   timestamptz not null default clock_timestamp(),
    -- Who did it: `api_key:3`; `login:ada`, a login in Postgres, for a command; or `anyone`, where
    -- TALLY_OPEN opens administration.
    who        text collate "C" not null
               constraint act_who_length check (char_length(who) between 1 and 100),
    -- The login that wrote the row. A server writes for others: `who` is then what that server said.
    login      text not null default session_user,
    -- With what: `http`, or a command, such as `tally key`.
    tool       text not null
               constraint act_tool_length check (char_length(tool) between 1 and 100),
    -- From where: over HTTP the client's address; for a command that of its connection, or null over
    -- a socket of the same machine.
    address    inet,
    -- What was done, such as `item.create`.
    what       text not null
               constraint act_what_length check (char_length(what) between 1 and 100),
    -- On what, such as `item:5`. Null: nothing, or it is not known.
    target     text
               constraint act_target_length check (char_length(target) between 1 and 100),
    -- begun: another row has the outcome, unless the program was ended. refused: it was not allowed,
    -- or not possible. failed: Tally could not do it, or does not know whether it was done.
    outcome    text not null
               constraint act_outcome check (outcome in ('begun', 'done', 'refused', 'failed')),
    -- Why it was refused or failed: a problem type, such as `not-allowed`.
    problem    text
               constraint act_problem_length check (char_length(problem) between 1 and 100),
    -- The row of the act's beginning, for an outcome whose beginning has a row of its own.
    begun_id   bigint references act,
    -- More about what was done. Never a key, a ballot, a password or a voter.
    details    jsonb
               constraint act_details_length check (octet_length(details::text) <= 16384)
);
-- Pages of the trail, since a time or by one actor. The primary key lists the newest first.
create index act_acted_at on act (acted_at);
create index act_who on act (who, id);
-- The outcome of what was begun; and the foreign key, when old rows are removed.
create index act_begun_id on act (begun_id) where begun_id is not null;

create trigger act_is_only_added_to before update or delete or truncate on act
    for each statement execute function refuse_change_of_trail();
-- Also where replication writes.
alter table act enable always trigger act_is_only_added_to;
