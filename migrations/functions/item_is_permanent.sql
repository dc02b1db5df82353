-- The trigger of `item`: refuses to delete an item, to truncate the table, or to change what never
-- changes. It stands in place of a foreign key from `vote`.
create or replace function item_is_permanent() returns trigger language plpgsql as $$
begin
    raise exception 'items are never deleted and keep their id, key, rule_id and takes_down_votes: votes and frontends refer to them'
        using errcode = 'restrict_violation';
end $$;
