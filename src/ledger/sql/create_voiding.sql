-- Creates a voiding; returns its id.
-- $1 voter, $2 item, $3 cast from and $4 until (µs since 1970; null: any), $5 the reason, $6 the last vote,
-- $7 the act to note, $8 hashes of client addresses and $9 the API key (null: any).
with made as (
    insert into voiding (voter_id, item_id, cast_from, cast_until, reason, until_vote_id, address_hashes, api_key_id)
    values ($1, $2,
            -- Seconds and µs apart: an interval is multiplied as a floating-point number.
            timestamptz 'epoch' + $3::bigint / 1000000 * interval '1 second' + $3::bigint % 1000000 * interval '1 microsecond',
            timestamptz 'epoch' + $4::bigint / 1000000 * interval '1 second' + $4::bigint % 1000000 * interval '1 microsecond',
            $5, $6, $8, $9)
    returning id
)
select id, note_act($7, 'voiding:' || id) as act_id from made
