-- The connections over which servers store votes. A server that dies between a
-- batch's commit and its count leaves votes that nobody counts; a sync worker finds
-- its connections here, sees that they are gone, and has the newest votes' items
-- counted afresh. Unlogged: after a crash of Postgres everything is counted afresh
-- anyway (0004_recovery).
create unlogged table lane (
    -- What the connection calls itself (application_name), unlike any other.
    name text primary key,
    -- When it was made; for a reader, no statement asks.
    connected_at timestamptz not null default now()
);
