select days.day::date as day, count(distinct vote.voter_id) as voters, count(vote.id) as votes_cast,
       count(vote.id) filter (where vote.voter_id is null) as anonymous_votes_cast
from generate_series((current_date - 1)::timestamp, current_date, interval '1 day') as days (day)
left join vote on (vote.created_at at time zone 'UTC')::date = days.day and vote.change_number % 2 = 0
group by days.day
order by days.day
