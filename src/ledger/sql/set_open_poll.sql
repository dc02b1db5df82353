-- Sets whether a poll is open to all voters: $1 poll, $2 whether it is, $3 the act to note, if
-- something changes. `is_there` is false if there is no such poll.
with target as (
    select id from rule where id = $1::bigint and title is not null
), made as (
    insert into open_poll (poll_id, to_voters)
    select id, $2::boolean from target
    on conflict (poll_id) do update set to_voters = excluded.to_voters
        where open_poll.to_voters is distinct from excluded.to_voters
    returning poll_id
)
select exists (select from target) as "is_there!",
       (select note_act($3, 'poll:' || poll_id) from made) as act_id
