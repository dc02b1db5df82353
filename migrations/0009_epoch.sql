-- Which epoch the saved counts are written in. A worker raises the number before it
-- invalidates the counters of another epoch. From then on no write of a count that was
-- read before is accepted: a worker may have stalled with it since before Redis lost its
-- data, and its revision could come again. (This is a fencing token.) One row.
create table epoch (
    -- Always true: there is one row.
    one    boolean primary key default true constraint epoch_is_one check (one),
    -- Only grows.
    number bigint not null default 0
);
insert into epoch default values;
