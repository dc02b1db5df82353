-- What becomes of votes of value 1 if their items are full: which would cast_votes refuse for that?
-- An entry for each line, in order: $1 item, $2 voter (null: none).
--   is_full     the item is open and all its places are taken, so a further vote is refused
--   is_refused  this vote would be refused for that: its voter holds no vote there, and nothing else
--               refuses it first
select item_is.is_full as "is_full!",
       -- An even change number casts a vote, and 999 is the last one.
       item_is.is_full and coalesce(last.change_number % 2 = 1 and last.change_number < 999, true) as "is_refused!"
from unnest($1::bigint[], $2::text[]) with ordinality as given (item, voter, line)
left join item on item.id = given.item
left join rule on rule.id = item.rule_id
left join place on place.item_id = item.id
-- The voter's last change on the item.
left join lateral (
    select one.change_number
    from vote_of_voter as one
    where one.item_id = given.item and one.voter_id = given.voter
    order by one.item_id desc, one.voter_id desc, one.change_number desc
    limit 1
) as last on given.voter is not null
cross join lateral (
    -- Not for a poll's choices, where other reasons may come first. now() is before the snapshot and
    -- clock_timestamp() after it, so the item was open when it was full.
    select coalesce(place.taken >= place.max_votes and rule.title is null and not rule.by_ballot
                    and coalesce(rule.opens_at <= now(), true)
                    and coalesce(rule.closes_at > clock_timestamp(), true), false) as is_full
) as item_is
order by given.line
