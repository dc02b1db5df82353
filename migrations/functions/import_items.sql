-- Creates items as a file of items has them, with their ids, rules and places. An item that is there with this
-- id, key and name stays as it is. Items without an id get the next ones, unless their key is there.
--
-- p_items: an array of objects: id, key, name, takes_down_votes, is_hidden, created_at; rule_id, is_choice;
-- opens_at, closes_at, by_ballot, is_secret; max_votes, is_numbered.
-- Returns for each in its order: null, or why it was not created; and how many are new.
-- Called by operators (`tally import`). Locks only what it creates.
create or replace function import_items(p_items jsonb, out whys text[], out created bigint)
security definer
language plpgsql as $$
declare
    one record;
    there item%rowtype;
    rule_title text;
    new_id bigint;
    why text;
begin
    whys := '{}';
    created := 0;
    for one in
        select * from jsonb_to_recordset(p_items) as given (
            id bigint, key text, name text, takes_down_votes boolean, is_hidden boolean, created_at timestamptz,
            rule_id bigint, is_choice boolean, opens_at timestamptz, closes_at timestamptz, by_ballot boolean,
            is_secret boolean, max_votes bigint, is_numbered boolean)
    loop
        why := null;
        if one.id is null then
            select * into there from item where item.key = one.key collate "C";
        else
            select * into there from item where item.id = one.id;
        end if;
        if found then
            if one.id is not null and (there.name, there.key, there.rule_id) is distinct from (one.name, one.key, one.rule_id) then
                why := format('another item has the id %s', one.id);
            end if;
        else
            begin
                if one.rule_id is not null then
                    select rule.title into rule_title from rule where rule.id = one.rule_id;
                    if not found and one.is_choice then
                        raise exception 'there is no poll %', one.rule_id using errcode = 'no_data_found';
                    elsif not found then
                        insert into rule (id, opens_at, closes_at, by_ballot, is_secret, created_at)
                        overriding system value
                        values (one.rule_id, one.opens_at, one.closes_at, coalesce(one.by_ballot, false),
                                coalesce(one.is_secret, false), coalesce(one.created_at, now()));
                    elsif one.is_choice is distinct from (rule_title is not null)
                          or rule_title is null and exists (select from item where item.rule_id = one.rule_id) then
                        raise exception 'the rule % belongs to another item or poll', one.rule_id using errcode = 'no_data_found';
                    end if;
                end if;
                if one.id is null then
                    insert into item (key, name, takes_down_votes, is_hidden, created_at, rule_id)
                    values (one.key, one.name, coalesce(one.takes_down_votes, true), coalesce(one.is_hidden, false),
                            coalesce(one.created_at, now()), one.rule_id)
                    returning item.id into new_id;
                else
                    insert into item (id, key, name, takes_down_votes, is_hidden, created_at, rule_id)
                    overriding system value
                    values (one.id, one.key, one.name, coalesce(one.takes_down_votes, true), coalesce(one.is_hidden, false),
                            coalesce(one.created_at, now()), one.rule_id)
                    returning item.id into new_id;
                end if;
                if one.max_votes is not null or one.is_numbered then
                    if one.rule_id is null then
                        raise exception 'an item with places has a rule_id' using errcode = 'no_data_found';
                    end if;
                    insert into place (item_id, max_votes, is_numbered)
                    values (new_id, one.max_votes, coalesce(one.is_numbered, false));
                end if;
                created := created + 1;
            exception
                when unique_violation then
                    why := format('another item has the key %s', one.key);
                when check_violation or not_null_violation or no_data_found then
                    why := sqlerrm;
            end;
        end if;
        whys := whys || why;
    end loop;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function import_items set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function import_items from public;
