-- How many of an item's votes are down-votes, beside their sum. With both, up-votes follow:
-- vote_count + down_count. Each vote is worth 1 or −1.
-- Sync workers of the version before this one must be stopped: they would save and roll up sums
-- alone. Their roll-up fails from here on, since it uses watermark.votes.
alter table item
    -- The saved count of down-votes, written together with vote_count.
    add column down_count         bigint not null default 0,
    -- The item's down-votes up to the watermark, written together with audited_count.
    add column audited_down_count bigint not null default 0;

-- How many votes there are up to the watermark.
alter table watermark rename column votes to vote_total;

-- No roll-up between the sums below and the watermark that they belong to.
select vote_id from watermark for update;

-- A row below 0 is a down-vote (even change_number) or takes an up-vote back (odd); a row
-- above 0 that takes a down-vote back has an odd number too.
update item
set audited_down_count = given.downs, down_count = given.downs
from (
    select item_id,
           count(*) filter (where value < 0 and change_number % 2 = 0)
           - count(*) filter (where value > 0 and change_number % 2 = 1) as downs
    from vote
    where id <= (select vote_id from watermark)
    group by item_id
) as given
where item.id = given.item_id and given.downs <> 0;
