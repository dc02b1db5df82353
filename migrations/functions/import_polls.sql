-- Creates polls as a file of polls has them, with their ids. A poll that is there with this id, key and title
-- stays as it is.
--
-- p_polls: an array of objects: id, key, title, max_choices, opens_at, closes_at, shows_results, is_hidden,
-- by_ballot, is_secret, created_at.
-- Returns for each in its order: null, or why it was not created; and how many are new.
-- Called by operators (`tally import`). Locks only what it creates.
create or replace function import_polls(p_polls jsonb, out whys text[], out created bigint)
security definer
language plpgsql as $$
declare
    one rule%rowtype;
    there rule%rowtype;
    shape text;
begin
    whys := '{}';
    created := 0;
    for one in select * from jsonb_populate_recordset(null::rule, p_polls) loop
        shape := null;
        select * into there from rule where rule.id = one.id;
        if found then
            if (there.title, there.key) is distinct from (one.title, one.key) then
                shape := format('another poll or rule has the id %s', one.id);
            end if;
        else
            begin
                insert into rule (id, key, title, max_choices, opens_at, closes_at, shows_results, is_hidden, by_ballot,
                                  is_secret, created_at)
                overriding system value
                values (one.id, one.key, one.title, one.max_choices, one.opens_at, one.closes_at,
                        coalesce(one.shows_results, true), coalesce(one.is_hidden, false), coalesce(one.by_ballot, false),
                        coalesce(one.is_secret, false), coalesce(one.created_at, now()));
                created := created + 1;
            exception
                when unique_violation then
                    shape := format('another poll has the key %s', one.key);
                when check_violation or not_null_violation or numeric_value_out_of_range then
                    shape := sqlerrm;
            end;
        end if;
        whys := whys || shape;
    end loop;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function import_polls set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function import_polls from public;
