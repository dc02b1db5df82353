-- Writes counts behind to their items, only forward in counted_at.
-- $1 item ids, $2 counts, $3 revs (µs). Returns the items whose saved count is
-- now the given one.
with held as materialized (
    -- Two workers lock the rows in one order, so that neither waits in a circle.
    select item.id, item.vote_count as held_count, given.vote_count,
           (extract(epoch from item.counted_at) * 1000000)::bigint as held_rev, given.rev
    from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as given (id, vote_count, rev)
    join item on item.id = given.id
    order by item.id
    for no key update of item
), written as (
    update item
    set vote_count = held.vote_count,
        counted_at = timestamptz 'epoch' + held.rev * interval '1 microsecond'
    from held
    where item.id = held.id
      and (held.held_rev is null or held.held_rev <= held.rev)
    returning item.id
)
select id as "id!" from written
union all
-- A recount came first and wrote the same: saved all the same, and without this
-- the count would be tried and turned away until its next vote.
select id from held where held_rev > rev and held_count = vote_count
