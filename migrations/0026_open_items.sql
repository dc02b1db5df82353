-- What voters without a credential may do on one item or in one poll, where their server is closed.
create table open_item (
    item_id      bigint primary key references item,
    -- Whether anyone may vote on it without a voter.
    to_anonymous boolean not null,
    -- Whether anyone may vote on it as any voter.
    to_voters    boolean not null
);

-- The same of a poll, and so of all of its choices: a poll takes votes of voters only.
create table open_poll (
    poll_id   bigint primary key references rule,
    to_voters boolean not null
);
