-- Creates an API key; returns its id.
-- $1 the hash, $2 the name, $3 the scopes, $4 when it expires (µs since 1970; null: never), $5 the act to note.
with made as (
    insert into api_key (key_hash, name, scopes, expires_at)
    values ($1, $2, $3,
            -- Seconds and µs apart: an interval is multiplied as a floating-point number.
            timestamptz 'epoch' + $4::bigint / 1000000 * interval '1 second' + $4::bigint % 1000000 * interval '1 microsecond')
    returning id
)
select id, note_act($5, 'api_key:' || id) as act_id from made
