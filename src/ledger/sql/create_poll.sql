-- Creates a poll and its choices; returns the poll's id.
-- $1 title, $2 max_choices, $3 opens_at and $4 closes_at (µs since 1970), $5 whether its results
-- are shown before it closes, $6 the names of its choices, in their order, $7 whether each vote
-- needs a ballot, $8 whether it is secret, $9 its key, $10 the act to note.
with made_rule as (
    insert into rule (title, max_choices, opens_at, closes_at, shows_results, by_ballot, is_secret, key)
    -- Seconds and µs apart: an interval is multiplied as a floating-point number.
    values ($1::text, $2::smallint,
            timestamptz 'epoch' + $3::bigint / 1000000 * interval '1 second'
                + $3::bigint % 1000000 * interval '1 microsecond',
            timestamptz 'epoch' + $4::bigint / 1000000 * interval '1 second'
                + $4::bigint % 1000000 * interval '1 microsecond', $5::boolean,
            $7::boolean, $8::boolean, $9::text)
    returning id
), made_items as (
    insert into item (name, takes_down_votes, rule_id)
    select given.name, false, made_rule.id
    from made_rule, unnest($6::text[]) with ordinality as given (name, position)
    -- So their ids go up in this order.
    order by given.position
    returning id
)
select id as "id!", note_act($10, 'poll:' || id) as act_id from made_rule
