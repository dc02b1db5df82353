with held as (
    select item.rule_id as poll_id, item.id as item_id, item.name, coalesce(sum(1 - 2 * (vote.change_number % 2)), 0) as votes
    from item join rule on rule.id = item.rule_id and rule.title is not null
    left join vote on vote.item_id = item.id
    group by item.id
), totals as (
    select poll_id, sum(votes) as votes from held group by poll_id order by votes desc, poll_id limit 1
), turnout as (
    -- Each vote without a voter is one voter.
    select count(distinct voter_id) filter (where votes > 0) + coalesce(sum(votes) filter (where voter_id is null), 0) as voters
    from (
        select vote.voter_id, sum(1 - 2 * (vote.change_number % 2)) as votes
        from vote join totals on totals.poll_id = vote.poll_id group by vote.voter_id
    ) as one
)
select rule.title as poll_title,
       case when rule.opens_at > now() then 'not open yet' when rule.closes_at <= now() then 'closed' else 'open' end as state,
       turnout.voters::bigint, case when rule.by_ballot then round(turnout.voters::numeric / nullif(rule.ballot_count, 0), 4) end as turnout_share,
       (select count(*) from held as other where other.poll_id = held.poll_id and other.votes > held.votes) + 1 as rank,
       held.name as item_name, held.votes::bigint, round(held.votes::numeric / nullif(totals.votes, 0), 4) as share_of_votes,
       round(held.votes::numeric / nullif(turnout.voters, 0), 4) as share_of_voters
from totals join rule on rule.id = totals.poll_id join held on held.poll_id = totals.poll_id cross join turnout
order by 5, held.item_id
