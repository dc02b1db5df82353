-- pg_dump takes along what an unlogged table holds. A restored row is one that another
-- transaction wrote, so it can be told from one that was drawn here.
alter table recovery
    -- The transaction that drew the token: in that row's database, its xmin.
    add column drawn_by xid8 not null default pg_current_xact_id();
