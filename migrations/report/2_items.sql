-- Items and polls: saved counts.

create or replace view items as
select item.id                                     as item_id,
       item.name                                   as item_name,
       item.key                                    as item_key,
       case when rule.title is not null then rule.id end as poll_id,
       rule.title                                  as poll_title,
       item.vote_count + item.down_count           as up_votes,
       item.down_count                             as down_votes,
       item.vote_count + 2 * item.down_count       as votes,
       item.vote_count                             as score,
       round((item.vote_count + item.down_count)::numeric / nullif(item.vote_count + 2 * item.down_count, 0), 4) as up_share,
       case when rule.opens_at > now() then 'not open yet' when rule.closes_at <= now() then 'closed' else 'open' end as state,
       rule.opens_at,
       rule.closes_at,
       place.max_votes                             as places,
       case when place.max_votes is not null then place.taken end as places_taken,
       place.max_votes - place.taken               as places_free,
       coalesce(place.taken >= place.max_votes, false) as is_full,
       case when place.is_numbered then place.last_number end as last_number,
       item.takes_down_votes,
       coalesce(rule.by_ballot, false)             as by_ballot,
       item.is_hidden,
       item.created_at,
       item.counted_at
from item
left join rule on rule.id = item.rule_id
left join place on place.item_id = item.id;
comment on view items is 'One row per item, also hidden ones and the choices of polls: its votes, places, rule. Saved counts, some seconds old.';
comment on column items.item_id is 'The id, for ever.';
comment on column items.item_name is 'What people see. Not unique.';
comment on column items.item_key is 'Your own key of the item, unique. Null: it has none.';
comment on column items.poll_id is 'The poll that the item is a choice of. Null: it is none.';
comment on column items.poll_title is 'That poll''s title.';
comment on column items.up_votes is 'Up-votes that are held: cast and not taken back.';
comment on column items.down_votes is 'Down-votes that are held.';
comment on column items.votes is 'up_votes and down_votes together.';
comment on column items.score is 'up_votes less down_votes: the count that Tally shows.';
comment on column items.up_share is 'up_votes / votes, from 0 to 1, rounded to 4 digits. Null: no votes.';
comment on column items.state is 'By opens_at, closes_at and now: not open yet, open, or closed.';
comment on column items.opens_at is 'Votes are taken from then on. Null: no limit.';
comment on column items.closes_at is 'Votes are taken until then. Null: no limit.';
comment on column items.places is 'How many votes the item takes. Null: any number.';
comment on column items.places_taken is 'How many places are taken. Exact now, so it may be ahead of votes. Null: any number of places.';
comment on column items.places_free is 'places less places_taken.';
comment on column items.is_full is 'Whether no place is free.';
comment on column items.last_number is 'The last number that was given. Null: the item does not number its votes.';
comment on column items.takes_down_votes is 'Whether the item takes down-votes.';
comment on column items.by_ballot is 'Whether each vote takes a ballot. Such votes have no voter.';
comment on column items.is_hidden is 'Whether lists leave the item out. Its votes count.';
comment on column items.created_at is 'When the item was created.';
comment on column items.counted_at is 'When the count that is saved last changed or was rebuilt, by Redis'' clock. Null: never saved.';

create or replace view polls as
select rule.id                as poll_id,
       rule.title             as poll_title,
       rule.key               as poll_key,
       case when rule.opens_at > now() then 'not open yet' when rule.closes_at <= now() then 'closed' else 'open' end as state,
       rule.opens_at,
       rule.closes_at,
       choices.total          as choices,
       coalesce(choices.votes, 0)::bigint as votes,
       rule.voter_count       as voters,
       case when rule.by_ballot then rule.ballot_count end as ballots,
       case when rule.by_ballot then round(rule.voter_count::numeric / nullif(rule.ballot_count, 0), 4) end as turnout_share,
       rule.max_choices,
       rule.shows_results     as results_before_close,
       rule.by_ballot,
       rule.is_secret,
       rule.is_hidden,
       rule.created_at,
       choices.counted_at
from rule
cross join lateral (
    select count(*) as total, sum(item.vote_count + 2 * item.down_count) as votes, max(item.counted_at) as counted_at
    from item where item.rule_id = rule.id
) as choices
where rule.title is not null;
comment on view polls is 'One row per poll, also hidden ones: state, votes, turnout. Counts that a poll hides from its voters are shown here.';
comment on column polls.poll_id is 'The id, for ever.';
comment on column polls.poll_title is 'What people see.';
comment on column polls.poll_key is 'Your own key of the poll, unique. Null: it has none.';
comment on column polls.state is 'By opens_at, closes_at and now: not open yet, open, or closed.';
comment on column polls.opens_at is 'Votes are taken from then on. Null: no limit.';
comment on column polls.closes_at is 'Votes are taken until then. Null: no limit.';
comment on column polls.choices is 'How many choices it has. Each is an item.';
comment on column polls.votes is 'Votes that are held on all choices. A saved count, some seconds old.';
comment on column polls.voters is 'The turnout: how many voters hold a choice. In a poll by ballot each vote is one voter. Exact now.';
comment on column polls.ballots is 'Ballots that were made. Null: the poll takes none.';
comment on column polls.turnout_share is 'voters / ballots, from 0 to 1, rounded to 4 digits. Null: not by ballot, so nobody knows how many could vote.';
comment on column polls.max_choices is 'How many choices a voter may hold. Null: any number.';
comment on column polls.results_before_close is 'Whether voters see the counts before the poll closes.';
comment on column polls.by_ballot is 'Whether each vote takes a ballot. Such votes have no voter.';
comment on column polls.is_secret is 'Whether nothing that Tally keeps says which ballot bought which vote.';
comment on column polls.is_hidden is 'Whether lists leave the poll out.';
comment on column polls.created_at is 'When the poll was created.';
comment on column polls.counted_at is 'When a saved count of its choices last changed, by Redis'' clock.';

create or replace view poll_results as
select rule.id              as poll_id,
       rule.title           as poll_title,
       case when rule.opens_at > now() then 'not open yet' when rule.closes_at <= now() then 'closed' else 'open' end as state,
       rank() over (partition by rule.id order by item.vote_count + 2 * item.down_count desc) as rank,
       item.id              as item_id,
       item.name            as item_name,
       item.vote_count + 2 * item.down_count as votes,
       round((item.vote_count + 2 * item.down_count)
             / nullif(sum(item.vote_count + 2 * item.down_count) over (partition by rule.id), 0), 4) as share_of_votes,
       round((item.vote_count + 2 * item.down_count)::numeric / nullif(rule.voter_count, 0), 4) as share_of_voters,
       (sum(item.vote_count + 2 * item.down_count) over (partition by rule.id))::bigint as poll_votes,
       rule.voter_count     as voters
from rule join item on item.rule_id = rule.id
where rule.title is not null;
comment on view poll_results is 'One row per choice of a poll: rank, votes, shares. Saved counts, some seconds old. Final once the state is closed, but for voidings.';
comment on column poll_results.poll_id is 'The poll.';
comment on column poll_results.poll_title is 'Its title.';
comment on column poll_results.state is 'The poll''s: not open yet, open, or closed.';
comment on column poll_results.rank is '1: the most votes. Choices with equal votes have the same rank.';
comment on column poll_results.item_id is 'The choice: an item.';
comment on column poll_results.item_name is 'Its name.';
comment on column poll_results.votes is 'Votes that are held on the choice.';
comment on column poll_results.share_of_votes is 'votes / poll_votes, from 0 to 1, rounded to 4 digits. Null: no votes.';
comment on column poll_results.share_of_voters is 'votes / voters, from 0 to 1, rounded to 4 digits. The shares add up to more than 1 where a voter may hold several choices.';
comment on column poll_results.poll_votes is 'Votes on all choices of the poll.';
comment on column poll_results.voters is 'The turnout: how many voters hold a choice.';
