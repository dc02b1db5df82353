-- Where a page of votes lies: the id before the first one above $1 (there may be a large gap), and the watermark.
select (select min(id) - 1 from vote where id > $1) as begins_after, vote_id as until from watermark
