-- The field's own words for what the first migrations named otherwise. Nothing else
-- changes. A migration that has run is never edited, so the files before this one keep
-- their words; docs/DECISIONS.md has a table of both.

-- Each row is one Postgres connection over which a server's batch writer stores votes.
-- When such a connection is gone, a sync worker has the counts of the items that its
-- newest votes are on rebuilt from the ledger (crashed-writer recovery).
alter table lane rename to writer_connection;
alter index lane_pkey rename to writer_connection_pkey;

-- Which incarnation of Postgres this is: another token means that Postgres crashed, failed
-- over, or was restored from a dump, and that transaction ids may have been drawn twice.
alter table recovery rename to incarnation;
alter index recovery_pkey rename to incarnation_pkey;
alter table incarnation rename constraint recovery_is_one to incarnation_is_one;
