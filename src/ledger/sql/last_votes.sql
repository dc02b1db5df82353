-- The last rows of the given voters on the given items; $1 item ids, $2 voter ids. One with an
-- even change_number is a vote that is held.
with awaited as materialized (
    -- A repeat is answered like a stored vote. Where commits wait for a standby, this one waits, too: the
    -- standby then has the earlier vote, even if someone cancelled that vote's wait. Nobody reads the note.
    select pg_logical_emit_message(true, 'tally', '') as note
    where current_setting('synchronous_standby_names') <> ''
)
select given.position as "position!", last.id as "id!", last.value as "value!",
       last.change_number as "change_number!"
from unnest($1::bigint[], $2::text[]) with ordinality as given (item_id, voter_id, position)
cross join lateral (
    select vote.id, vote.value, vote.change_number
    from vote_of_voter as vote
    where vote.item_id = given.item_id
      and vote.voter_id = given.voter_id
    -- This order makes it one index lookup for each vote: backwards in vote_once.
    order by vote.item_id desc, vote.voter_id desc, vote.change_number desc
    limit 1
) as last
where (select count(note) from awaited) >= 0
