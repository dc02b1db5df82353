-- The row of vote $1, and whether it is counted: every batch writer has counted its votes up to
-- this id. No row for a poll that hides its results, since someone could read all its receipts
-- and add them up; nor for a secret vote.
select vote.item_id, vote.value, vote.change_number, vote.number,
       vote.id <= all (select counted_vote_id from writer_connection) as "is_counted!"
from vote
where vote.id = $1
  and not exists (
      select from item join rule on rule.id = item.rule_id
      where item.id = vote.item_id and (not rule.shows_results or rule.is_secret)
  )
