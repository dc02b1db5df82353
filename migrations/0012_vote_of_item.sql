-- An item's votes, in the order of their ids, with all that is asked of them, so that the
-- index alone answers: `value` for exact counts; `change_number` to tell a vote from its
-- changes and retractions; `created_at` for reports on one item over time. Votes wait while
-- it is made, a second or two for each million of them; past 5 s they get 503.
create index vote_of_item_wide on vote (item_id, id) include (value, change_number, created_at);
drop index vote_of_item;
alter index vote_of_item_wide rename to vote_of_item;
