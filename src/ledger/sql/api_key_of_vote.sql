-- The API key that vote $1 was cast with.
select api_key_id from vote_api_key
where block = $1::bigint / 4096 and vote_ids @> $1::bigint
limit 1
