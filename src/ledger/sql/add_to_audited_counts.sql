-- Adds sums of votes to audited counts.
-- $1 item ids, each once; $2 the sums of their votes; $3 the sums of their down-votes.
insert into audited_count (item_id, vote_count, down_count)
select item_id, sum, downs
from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as given (item_id, sum, downs)
on conflict (item_id) do update
set vote_count = audited_count.vote_count + excluded.vote_count,
    down_count = audited_count.down_count + excluded.down_count
