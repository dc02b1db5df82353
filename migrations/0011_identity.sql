-- Which Tally this is: the owner's mark in Redis has the id, so that two Tallys do not use the
-- same keys. It never changes, and a restored dump has it too. One row.
create table identity (
    -- Always true: there is one row.
    one boolean primary key default true constraint identity_is_one check (one),
    id  text not null default gen_random_uuid()::text
);
insert into identity default values;
