-- Berlin's hours begin with UTC's.
select hours.hour at time zone 'Europe/Berlin' as local_hour,
       count(vote.id) filter (where vote.change_number % 2 = 0) as votes_cast,
       count(vote.id) filter (where vote.change_number % 2 = 1) as votes_taken_back,
       coalesce(sum(1 - 2 * (vote.change_number % 2)), 0)::bigint as votes
from generate_series((current_date - 1)::timestamp at time zone 'Europe/Berlin',
                     ((current_date + 1)::timestamp at time zone 'Europe/Berlin') - interval '1 hour', interval '1 hour') as hours (hour)
left join vote on date_trunc('hour', vote.created_at, 'UTC') = hours.hour
group by hours.hour
order by hours.hour
