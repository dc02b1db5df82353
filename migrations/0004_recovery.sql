-- Whether Postgres has come back from a crash, or is another one since a failover.
-- Either empties an unlogged table, and nothing else does. After a crash,
-- transaction ids that were drawn but not yet on disk are drawn again, so a live
-- count's fence may take a new vote for one it has seen: the sync worker then has
-- every live count counted afresh, as after a restart of Redis.
create unlogged table recovery (
    -- Always true: there is one row, or none after a crash.
    one   boolean primary key default true constraint recovery_is_one check (one),
    -- Drawn by whichever worker comes first.
    token text not null default gen_random_uuid()::text
);
