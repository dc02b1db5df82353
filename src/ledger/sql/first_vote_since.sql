-- The last vote that was cast before the time 25 hours ago, about: ids go up with time, but for votes that
-- were stored at the same moment and clocks that step. Halves the ids between the first and $1.
with recursive half as (
    select 0::bigint as low, $1::bigint as high
    union all
    select case when is_older then middle else low end, case when is_older then high else middle end
    from (
        select low, high, (low + high) / 2 as middle,
               -- The next vote behind the middle; none: it is as if it was now.
               coalesce((select vote.created_at < now() - interval '25 hours' from vote
                         where vote.id > (low + high) / 2 order by vote.id limit 1), false) as is_older
        from half where high - low > 1
    ) as next
)
select min(low) filter (where high - low <= 1) as "vote_id" from half
