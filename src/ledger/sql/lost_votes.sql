-- Which of these votes the ledger does not have: their positions, counted from 1.
-- $1 ids, $2 items and $3 times of their batches (µs since 1970), an array entry for each vote.
select pg_is_in_recovery() as "is_standby!",
       (
           select array_agg(given.position)
           from unnest($1::bigint[], $2::bigint[], $3::bigint[]) with ordinality
                as given (id, item_id, created_at, position)
           left join lateral (
               select vote.item_id, vote.created_at from vote where vote.id = given.id
               -- As in exact_counts.sql.
               offset 0
           ) as found on true
           where found.item_id is distinct from given.item_id
              or (date_part('epoch', found.created_at) * 1000000)::bigint is distinct from given.created_at
       ) as lost
