-- What operators voided.

create or replace view voidings as
select voiding.id as voiding_id,
       voiding.reason,
       case when voiding.undone_vote_id is not null then
                case when exists (select from voided where voided.voiding_id = voiding.id and voided.vote_id > voiding.undone_vote_id)
                     then 'being undone' else 'undone' end
            when voiding.done_vote_id < voiding.until_vote_id then 'under way'
            else 'done' end as state,
       voiding.created_at,
       voiding.voter_id,
       voiding.item_id,
       voiding.cast_from,
       voiding.cast_until,
       voiding.api_key_id,
       voiding.address_hashes is not null as is_by_address,
       totals.voided as votes_voided,
       totals.again as votes_cast_again,
       totals.left_void as votes_left_void
from voiding
cross join lateral (
    select count(*) as voided, count(voided.again_vote_id) as again, count(voided.left_void) as left_void
    from voided where voided.voiding_id = voiding.id
) as totals;
comment on view voidings is 'One row per voiding: which votes an operator took back, why, and how many. The votes match all filters that are not null.';
comment on column voidings.voiding_id is 'The voiding.';
comment on column voidings.reason is 'Why, in the operator''s words.';
comment on column voidings.state is 'under way, done, being undone or undone.';
comment on column voidings.created_at is 'When it began. Its votes count as taken back when that was done, from then on.';
comment on column voidings.voter_id is 'Filter: votes of this voter.';
comment on column voidings.item_id is 'Filter: votes on this item.';
comment on column voidings.cast_from is 'Filter: cast at this time or later.';
comment on column voidings.cast_until is 'Filter: cast before this time.';
comment on column voidings.api_key_id is 'Filter: cast with this API key.';
comment on column voidings.is_by_address is 'Filter: whether they are of certain client addresses. No view shows which.';
comment on column voidings.votes_voided is 'How many votes it took back.';
comment on column voidings.votes_cast_again is 'How many of them undoing it cast again.';
comment on column voidings.votes_left_void is 'How many of them undoing it left void.';

create or replace view voided_votes as
select voided.vote_id,
       voided.voiding_id,
       voiding.reason,
       was.item_id,
       item.name as item_name,
       was.poll_id,
       was.voter_id,
       case when was.value > 0 then 'up' else 'down' end as direction,
       was.created_at   as cast_at,
       back.created_at  as voided_at,
       again.created_at as cast_again_at,
       voided.left_void as left_void_because,
       voided.by_vote_id    as voided_by_vote_id,
       voided.again_vote_id as cast_again_vote_id
from voided
left join voiding on voiding.id = voided.voiding_id
left join vote as was on was.id = voided.vote_id
left join vote as back on back.id = voided.by_vote_id
left join vote as again on again.id = voided.again_vote_id
left join item on item.id = was.item_id;
comment on view voided_votes is 'One row per vote that was voided. In counts by time it was cast on the day of cast_at, taken back on that of voided_at, and, after an undo, cast again on that of cast_again_at. Of a vote that was archived, only the numbers of the vote and of its voiding are left.';
comment on column voided_votes.vote_id is 'The vote: a row of report.votes.';
comment on column voided_votes.voiding_id is 'The voiding.';
comment on column voided_votes.reason is 'Why, in the operator''s words.';
comment on column voided_votes.item_id is 'The item.';
comment on column voided_votes.item_name is 'Its name.';
comment on column voided_votes.poll_id is 'The poll, if the item is a choice.';
comment on column voided_votes.voter_id is 'Who had voted. Null: anonymous, or with a ballot.';
comment on column voided_votes.direction is 'up or down.';
comment on column voided_votes.cast_at is 'When the vote was cast.';
comment on column voided_votes.voided_at is 'When it was taken back.';
comment on column voided_votes.cast_again_at is 'When an undo cast it again. Null: it is void.';
comment on column voided_votes.left_void_because is 'Why an undo left it void: changed (the voter has voted again), full (no place), choices (as many as the poll allows), archived. Null: no undo looked at it, or it was cast again.';
comment on column voided_votes.voided_by_vote_id is 'The row of report.votes that takes it back.';
comment on column voided_votes.cast_again_vote_id is 'The row of report.votes that casts it again. Null: it is void.';
