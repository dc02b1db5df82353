-- Adds a choice to a poll that has not closed.
--
-- p_poll: the poll. p_name: the choice's name. p_limit: the most choices of a poll.
-- Returns what became of it, and the choice's item: added; or there: a choice has exactly this name already. Or no item:
-- unknown: there is no such poll; closed: its results are final; same_choice: another choice looks the same by that
-- name; many: the poll has as many choices as it may.
-- Called by servers. Locks: the poll's rule, so it waits for votes that are being decided, and whoever asks whether the
-- poll is final waits for it.
create or replace function add_choice(
    p_poll bigint, p_name text, p_limit bigint,
    out outcome text, out item_id bigint
)
security definer
language plpgsql as $$
#variable_conflict use_variable
declare
    held rule%rowtype;
begin
    select * into held from rule where rule.id = p_poll and rule.title is not null for no key update;
    if not found then
        outcome := 'unknown';
        return;
    end if;
    -- Statements of their own behind the lock: they see what was added before.
    select item.id into item_id from item where item.rule_id = p_poll and item.name = p_name order by item.id limit 1;
    if found then
        outcome := 'there';
    elsif held.closes_at <= clock_timestamp() or held.archive_id is not null then
        outcome := 'closed';
    elsif exists (select from item where item.rule_id = p_poll and shown_name(item.name) = shown_name(p_name)) then
        outcome := 'same_choice';
    elsif (select count(*) from item where item.rule_id = p_poll) >= p_limit then
        outcome := 'many';
    else
        -- As in create_poll.sql.
        insert into item (name, takes_down_votes, rule_id) values (p_name, false, p_poll) returning item.id into item_id;
        outcome := 'added';
    end if;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function add_choice set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function add_choice from public;
