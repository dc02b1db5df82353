-- Notes acknowledged votes that the ledger no longer has. A repeat with the same token stores nothing.
-- $1 a token, $2 how many votes, $3 and $4 when the first and the last had been stored (µs since 1970), $5 and $6
-- the lowest and the highest id, $7 how many items, $8 whether these are all, $9 items and $10 their votes.
with noted as (
    insert into loss (token, vote_total, first_stored_at, last_stored_at, first_vote_id, last_vote_id, item_total, is_whole)
    values ($1, $2, 'epoch'::timestamptz + $3::bigint / 1000000 * interval '1 second' + $3::bigint % 1000000 * interval '1 microsecond',
            'epoch'::timestamptz + $4::bigint / 1000000 * interval '1 second' + $4::bigint % 1000000 * interval '1 microsecond', $5, $6, $7, $8)
    on conflict (token) do nothing
    returning id
)
insert into loss_item (loss_id, item_id, vote_total)
select noted.id, given.item_id, given.votes
from noted, unnest($9::bigint[], $10::bigint[]) as given (item_id, votes)
