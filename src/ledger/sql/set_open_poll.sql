-- Sets whether a poll is open to all voters: $1 poll, $2 whether it is, $3 the act to note. No row:
-- there is no such poll.
with made as (
    insert into open_poll (poll_id, to_voters)
    select id, $2::boolean from rule where id = $1::bigint and title is not null
    on conflict (poll_id) do update set to_voters = excluded.to_voters
    returning poll_id
)
select note_act($3, 'poll:' || poll_id) as act_id from made
