-- Creates an edit of a voter, or finds the one like it that has not ended. It changes no vote yet: see
-- edit_voter.
--
-- p_kind: rename, merge or erase. p_from: whose votes. p_to: whose they become. p_until: the last vote that
-- it concerns. p_act: the act to note.
-- Returns the edit; or why there is none: `edit`, another edit of one of these voters has not
-- ended; `voiding`, a voiding of one of them is not done; `archive`, an archive has not ended. `other` is its id.
-- Called by operators (`tally voter`, and servers with an operator's login).
-- Locks: the advisory lock 7416153282, as edit_voter and void_votes do.
create or replace function create_voter_edit(
    p_kind text, p_from text, p_to text, p_until bigint, p_act text,
    out edit bigint, out why text, out other bigint
)
security definer
language plpgsql as $$
#variable_conflict use_variable
declare
    held voter_edit%rowtype;
begin
    if p_from = p_to then
        raise exception 'a voter is not edited into itself' using errcode = 'invalid_parameter_value';
    end if;
    perform pg_advisory_xact_lock(7416153282);
    select * into held from voter_edit
    where voter_edit.ended_at is null
      and (voter_edit.from_voter_id in (p_from, p_to) or voter_edit.to_voter_id in (p_from, p_to))
    order by voter_edit.id limit 1;
    if found then
        if held.kind = p_kind and held.from_voter_id = p_from and (p_kind = 'erase' or held.to_voter_id = p_to) then
            edit := held.id;
        else
            why := 'edit';
            other := held.id;
        end if;
        return;
    end if;
    select voiding.id into other from voiding
    where voiding.voter_id in (p_from, p_to)
      and (voiding.done_vote_id < voiding.until_vote_id
           or voiding.undone_vote_id is not null and exists (
               select from voided
               where voided.voiding_id = voiding.id and voided.again_vote_id is null and voided.left_void is null))
    order by voiding.id limit 1;
    if found then
        why := 'voiding';
        return;
    end if;
    -- Its votes stay as the file has them.
    select archive.id into other from archive where archive.ended_at is null and archive.cancelled_at is null;
    if found then
        why := 'archive';
        return;
    end if;
    insert into voter_edit (kind, from_voter_id, to_voter_id, until_vote_id)
    values (p_kind, p_from, p_to, p_until)
    returning voter_edit.id into edit;
    perform note_act(p_act, 'voter_edit:' || edit);
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function create_voter_edit set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function create_voter_edit from public;
