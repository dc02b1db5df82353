-- Whether each of the items $1 is open to anonymous votes and to all voters. A choice takes this from its poll.
select item.id,
       coalesce(open_item.to_anonymous, false) as "to_anonymous!",
       coalesce(open_item.to_voters, false) or coalesce(open_poll.to_voters, false) as "to_voters!"
from item
left join open_item on open_item.item_id = item.id
left join open_poll on open_poll.poll_id = item.rule_id
where item.id = any($1::bigint[])
