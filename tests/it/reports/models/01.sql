-- By the UTC day on which a vote was cast or taken back.
with daily as (
    select (created_at at time zone 'UTC')::date as day,
           count(*) filter (where change_number % 2 = 0) as votes_cast,
           count(*) filter (where change_number % 2 = 1) as votes_taken_back
    from vote group by 1
)
select this.day, this.votes_cast, this.votes_taken_back, this.votes_cast - this.votes_taken_back as votes,
       before.votes_cast as week_before,
       round(100.0 * this.votes_cast / nullif(before.votes_cast, 0) - 100, 1) as growth_percent
from daily as this left join daily as before on before.day = this.day - 7
where this.day > current_date - 30
order by this.day
