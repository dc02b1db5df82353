-- How far back a lane may have left votes that nobody counts. The time of its end does
-- not tell: that may be seen long after, while Redis is away or no worker runs, and a
-- commit that hangs ends a batch long after its votes were made.
alter table lane
    -- When a worker last saw the connection with no vote under way. Whatever it had
    -- committed before, it had long counted when it went.
    add column idle_at timestamptz not null default now();
