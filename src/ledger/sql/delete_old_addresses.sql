-- Deletes hashes of client addresses that are older than $1 (s), at most $2, under the lease with the
-- number $3 of the worker $4. Returns how many, and whether the lease was still held.
with held as (
    -- As in delete_old_keys.sql.
    select from job where name = 'delete_addresses' and fencing_number = $3 and holder = $4 for share
), deleted as (
    delete from vote_address
    where exists (select from held)
      and vote_id = any(array(
          select vote_id from vote_address
          where noted_at < now() - $1::bigint * interval '1 second'
          order by noted_at limit $2))
    returning vote_id
), forgotten as (
    -- Also the hashes that a voiding looked for: no vote has them any more.
    update voiding set address_hashes = '{}'
    where exists (select from held)
      and cardinality(address_hashes) > 0
      and created_at < now() - $1::bigint * interval '1 second'
)
select (select count(*) from deleted) as "addresses!", exists (select from held) as "is_held!"
