-- Notes between which times the votes with $1 < id <= $2 were cast: $3 and $4 are the first and the last of their
-- spans (numbers of five minutes since 1970). The newest range is made longer while it has at most $5 ids.
with given as (
    select $1::bigint + 1 as first_vote_id, $2::bigint as last_vote_id,
           timestamptz 'epoch' + $3::bigint * interval '5 minutes' as first_at,
           timestamptz 'epoch' + ($4::bigint + 1) * interval '5 minutes' as last_at
), longer as (
    update vote_time
    set last_vote_id = given.last_vote_id,
        first_at = least(vote_time.first_at, given.first_at),
        last_at = greatest(vote_time.last_at, given.last_at)
    from given
    where vote_time.last_vote_id = (select last_vote_id from vote_time order by last_vote_id desc limit 1)
      and vote_time.last_vote_id < given.first_vote_id
      and given.last_vote_id - vote_time.first_vote_id < $5::bigint
    returning 1
)
insert into vote_time (first_vote_id, last_vote_id, first_at, last_at)
select first_vote_id, last_vote_id, first_at, last_at from given
where not exists (select from longer)
-- Someone has set the watermark back, and its votes are rolled up again.
on conflict (last_vote_id) do update
set first_vote_id = least(vote_time.first_vote_id, excluded.first_vote_id),
    first_at = least(vote_time.first_at, excluded.first_at),
    last_at = greatest(vote_time.last_at, excluded.last_at)
