-- Edits a poll: the function edit_poll, migrations/functions/edit_poll.sql; says what became of it.
-- $1 poll, $2 title and $3 whether it is hidden (null: as it is), $4 whether to set opens_at, $5 to what,
-- $6 whether to set closes_at, $7 to what (µs since 1970; null: none),
-- $8 the act to note.
select outcome as "outcome!", case when outcome = 'edited' then note_act($8, 'poll:' || $1::bigint) end as act_id
from edit_poll(
    $1, $2, $3,
    -- Seconds and µs apart: an interval is multiplied as a floating-point number.
    $4, timestamptz 'epoch' + $5::bigint / 1000000 * interval '1 second'
            + $5::bigint % 1000000 * interval '1 microsecond',
    $6, timestamptz 'epoch' + $7::bigint / 1000000 * interval '1 second'
            + $7::bigint % 1000000 * interval '1 microsecond') as outcome
