-- The rows of a voter among the next vote ids, in the order of ids; times in µs since 1970.
-- $1 the voter; $2 another voter (null: none); $3 after this vote; $4 up to this vote.
select vote.id as "id!", vote.item_id as "item_id!", vote.poll_id, vote.value as "value!",
       vote.change_number as "change_number!", vote.number,
       (extract(epoch from vote.created_at) * 1000000)::bigint as "created_at!",
       -- With a voter's first row on an item: whether both hold a vote there.
       vote.change_number = 0
       and (select count(*) from vote_of_voter as own
            where own.item_id = vote.item_id and own.voter_id = vote.voter_id) % 2 = 1
       and (select count(*) from vote_of_voter as other
            where other.item_id = vote.item_id and other.voter_id = $2) % 2 = 1 as "is_of_both!"
from vote_of_voter as vote
where vote.id > $3 and vote.id <= $4 and vote.voter_id = $1
order by vote.id
