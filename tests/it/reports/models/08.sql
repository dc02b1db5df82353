with back as (
    select vote.*, (vote.created_at at time zone 'UTC')::date as day,
           vote.id in (select by_vote_id from voided) as is_voided,
           exists (select from vote as next
                   where next.item_id = vote.item_id and next.voter_id = vote.voter_id and next.change_number = vote.change_number + 1
                     and next.created_at = vote.created_at) as is_changed,
           exists (select from vote as other
                   where other.poll_id = vote.poll_id and other.voter_id = vote.voter_id and other.item_id <> vote.item_id
                     and other.created_at = vote.created_at and other.change_number % 2 = 0) as is_moved
    from vote where vote.change_number % 2 = 1
), again as (
    select (vote.created_at at time zone 'UTC')::date as day, count(*) as total
    from voided join vote on vote.id = voided.again_vote_id group by 1
)
select days.day::date, count(back.id) as votes_taken_back,
       count(back.id) filter (where not is_voided and is_changed) as changes,
       count(back.id) filter (where not is_voided and not is_changed and is_moved) as moves,
       count(back.id) filter (where not is_voided and not is_changed and not is_moved) as retractions,
       count(back.id) filter (where is_voided) as voided,
       coalesce(max(again.total), 0) as undone
from generate_series((current_date - 2)::timestamp, current_date, interval '1 day') as days (day)
left join back on back.day = days.day left join again on again.day = days.day
group by days.day
order by days.day
