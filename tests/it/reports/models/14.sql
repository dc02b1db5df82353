select (vote.created_at at time zone 'UTC')::date as day, api_key.name as api_key_name, count(*) as votes_cast
from vote
join vote_api_key on vote_api_key.block = vote.id / 4096 and vote_api_key.vote_ids @> vote.id
join api_key on api_key.id = vote_api_key.api_key_id
where vote.created_at >= now() - interval '3 days'
group by 1, api_key.id
order by 1, votes_cast desc, api_key.id
