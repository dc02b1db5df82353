-- The schema `report`: views and functions for analysts (docs/reports.md). `tally migrate` runs these files in order each
-- time, in one transaction, after the functions and before roles.sql. Names and columns stay when tables change: a view
-- gets new columns at its end.
--
-- Views have the owner's rights, so analysts need no right on the tables. Functions read only these views, with
-- the caller's rights, so Postgres inlines the simple ones. Their bodies are bound to views when they are made, so no
-- search path of a caller changes what they read. No view shows a hash of a key, a ballot or an address.

-- The views are in the schema `report`, or, if that has the `items` of another Tally or of someone else, in one that is
-- named after this Tally's schema. What follows names them without a schema: the search path does. 8_end.sql resets it.
do $$
declare
    home constant name := current_schema();
    wanted name := 'report';
begin
    if to_regclass('report.items') is not null and not exists (
        select from pg_rewrite
        join pg_depend on pg_depend.classid = 'pg_rewrite'::regclass and pg_depend.objid = pg_rewrite.oid
        where pg_rewrite.ev_class = to_regclass('report.items')
          and pg_depend.refclassid = 'pg_class'::regclass and pg_depend.refobjid = 'item'::regclass) then
        wanted := home || '_report';
    end if;
    -- `create schema if not exists` asks for the right to create one even where it exists.
    if not exists (select from pg_namespace where nspname = wanted) then
        execute format('create schema %I', wanted);
    end if;
    execute format($comment$comment on schema %I is %L$comment$, wanted,
        'What Tally''s analysts read: start with report.items, report.polls and report.votes_by_day. '
        'In every view: up_votes and down_votes are votes that are held, votes is their sum, score is up_votes less down_votes. '
        'In a view by time they say by how much that grew: cast less taken back. Sums over all of time are the totals. '
        'votes_cast counts what was cast, votes_taken_back what was taken back: by a change, a move, a retraction or a voiding. '
        'A vote counts when it was cast; taking it back counts when that was done. Days are days of UTC, unless a function takes a zone. '
        'Shares are from 0 to 1. report.freshness says as of when each view is.');
    perform set_config('tally.search_path', current_setting('search_path'), false);
    perform set_config('search_path', format('%I, %I, pg_temp', wanted, home), false);
end $$;
