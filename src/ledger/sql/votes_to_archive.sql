-- What an archive of the rules $1 would have: items, and the rows of the ledger.
select (select count(*) from item where rule_id = any($1::bigint[])) as "items!",
       (select count(*) from rule where id = any($1::bigint[]) and title is not null) as "polls!",
       count(*) as "votes!", coalesce(sum(vote.value), 0)::bigint as "net!", min(vote.id) as first, max(vote.id) as last
from item join vote on vote.item_id = item.id
where item.rule_id = any($1::bigint[])
