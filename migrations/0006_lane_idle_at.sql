-- How far back a lane may have left votes that nobody counts. The time of its end does
-- not tell: that may be seen long after, while Redis is away or no worker runs, and a
-- commit that hangs ends a batch long after its votes were made.
alter table lane
    -- When a worker last saw the connection with no vote under way.
    add column noted_at timestamptz not null default now(),
    -- The time before that. A connection whose client is gone looks idle until Postgres
    -- finds out, so the last time may be from after its end, and this one is not.
    -- Whatever it had committed before it, it had long counted when it went.
    add column idle_at timestamptz not null default now();
