-- The last vote that was cast more than 25 hours ago, roughly: ids go up with time, except for votes that
-- were stored at the same moment and clocks that step. Searches the ids up to $1 by halving.
with recursive half as (
    select 0::bigint as low, $1::bigint as high
    union all
    select case when is_older then middle else low end, case when is_older then high else middle end
    from (
        select low, high, (low + high) / 2 as middle,
               -- The age of the next vote after the middle. If there is none, the middle counts as new.
               coalesce((select vote.created_at < now() - interval '25 hours' from vote
                         where vote.id > (low + high) / 2 order by vote.id limit 1), false) as is_older
        from half where high - low > 1
    ) as next
)
select min(low) filter (where high - low <= 1) as "vote_id" from half
