-- What a voiding would take back next: the function votes_to_void, migrations/functions/votes_to_void.sql.
-- $1 voter, $2 item, $3 cast from and $4 until (µs since 1970; null: it does not matter), $5 the vote
-- after which it looks, $6 the last one, $7 votes and $8 ids at the most, $9 hashes of client addresses, $10 the API key.
select next.up_to as "up_to!",
       (select count(*) from vote where vote.id = any(next.ids)) as "votes!",
       (select coalesce(sum(vote.value), 0) from vote where vote.id = any(next.ids)) as "net!"
from votes_to_void(
    $1, $2,
    -- Seconds and µs apart: an interval is multiplied as a floating-point number.
    timestamptz 'epoch' + $3::bigint / 1000000 * interval '1 second' + $3::bigint % 1000000 * interval '1 microsecond',
    timestamptz 'epoch' + $4::bigint / 1000000 * interval '1 second' + $4::bigint % 1000000 * interval '1 microsecond',
    $9, $10, $5, $6, $7, $8) as next
