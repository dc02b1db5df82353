-- Creates an item with a rule of its own; returns its id, and the run of Postgres that gave it out.
-- $1 name, $2 whether it takes down-votes, $3 opens_at and $4 closes_at (µs since 1970), $5 max_votes, $6 whether its
-- votes are numbered, $7 whether each vote needs a ballot, $8 its key, $9 the act to note (null: none).
with made_rule as (
    insert into rule (opens_at, closes_at, by_ballot)
    -- Seconds and µs apart: an interval is multiplied as a floating-point number.
    values (timestamptz 'epoch' + $3::bigint / 1000000 * interval '1 second'
                + $3::bigint % 1000000 * interval '1 microsecond',
            timestamptz 'epoch' + $4::bigint / 1000000 * interval '1 second'
                + $4::bigint % 1000000 * interval '1 microsecond', $7::boolean)
    returning id
), made_item as (
    insert into item (name, key, takes_down_votes, rule_id)
    select $1::text, $8::text, $2::boolean, id from made_rule
    returning id
), made_place as (
    insert into place (item_id, max_votes, is_numbered)
    select id, $5::bigint, $6::boolean from made_item
    where $5::bigint is not null or $6::boolean
)
select id, postgres_run() as "run!", note_act($9, 'item:' || id) as act_id from made_item
