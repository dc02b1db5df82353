-- How far each batch writer's votes are counted, by ids alone: Postgres' clock may step,
-- and a time says nothing of a server that was stopped. The server raises it several times
-- a second, while votes come.
alter table writer_connection
    -- Each vote that this connection stored, with an id up to this one, is counted. What it
    -- has stored beyond may be in flight; if the connection is gone, it may never be counted.
    add column counted_vote_id bigint not null default 0;
-- Connections of servers from before this step, which do not tell how far they are.
update writer_connection set counted_vote_id = (select vote_id from watermark);
alter table writer_connection
    drop column noted_at,
    drop column idle_at;
