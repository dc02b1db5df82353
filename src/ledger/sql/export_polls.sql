-- All polls. Their choices are items.
select id, key, title, max_choices, opens_at, closes_at, shows_results, is_hidden, by_ballot, is_secret, created_at,
       voter_count, ballot_count
from rule
where title is not null
order by id
