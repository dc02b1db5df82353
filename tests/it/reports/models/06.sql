with span (since, since_time) as (
    values (interval '1 hour', date_bin('5 minutes', now() - interval '1 hour', timestamptz 'epoch')),
           (interval '1 day', date_bin('1 hour', now() - interval '1 day', timestamptz 'epoch')),
           (interval '7 days', date_trunc('day', now() - interval '7 days', 'UTC'))
), moved as (
    select span.since, span.since_time, item.id as item_id, item.name,
           sum(1 - 2 * (vote.change_number % 2)) as votes, sum(vote.value) as score,
           count(*) filter (where vote.change_number % 2 = 0) as votes_cast, count(*) filter (where vote.change_number % 2 = 1) as votes_taken_back,
           row_number() over (partition by span.since order by sum(1 - 2 * (vote.change_number % 2)) desc, item.id) as place
    from span join vote on vote.created_at >= span.since_time join item on item.id = vote.item_id
    group by span.since, span.since_time, item.id
)
select since, since_time, name as item_name, votes, score, votes_cast, votes_taken_back
from moved where place <= 10
order by since, votes desc, item_id
