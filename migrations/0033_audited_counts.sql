-- The audited counts, in a table of their own. In `item`, each roll-up wrote the rows that the flush
-- writes: each waited for the other, a row of an item that someone had locked kept the watermark
-- where it was, and the roll-up had to write all its rows as fast as it could, since it held them.
-- Programs of the version before this one must be stopped: their exact counts and roll-ups fail.
create table audited_count (
    -- Items without a row have an audited count of 0. Items are never deleted and keep their id
    -- (the trigger item_is_permanent), and a foreign key would lock their rows.
    item_id    bigint primary key,
    -- The sum of the item's votes up to the watermark. Written only by the roll-up.
    vote_count bigint not null,
    -- Its down-votes up to there, written together with it.
    down_count bigint not null
)
-- Each roll-up writes the rows of items with new votes: free space in each page keeps those
-- updates inside it (HOT).
with (fillfactor = 50);

-- No roll-up between the copy and the end of the old columns.
select vote_id from watermark for update;

insert into audited_count
select id, audited_count, audited_down_count from item
where audited_count <> 0 or audited_down_count <> 0;

alter table item
    drop column audited_count,
    drop column audited_down_count;
