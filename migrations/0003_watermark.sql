-- How far the audit has summed the ledger into item.audited_count. One row.
create table watermark (
    -- Always true: there is one watermark.
    one     boolean primary key default true constraint watermark_is_one check (one),
    -- Every vote with an id up to this one is in its item's audited_count.
    vote_id bigint not null default 0,
    -- How many votes those are.
    votes   bigint not null default 0
);
insert into watermark default values;

-- item and vote are planned by statistics; the ledger grows fast enough that
-- the default (a fifth of the table) would come too rarely to keep the
-- visibility map fresh, which the audit's range scans profit from.
alter table vote set (autovacuum_vacuum_insert_scale_factor = 0.05);
