-- The next $2 polls below $1 that are not hidden and whose titles match $3, newest first, as in search_items.sql.
select id as "id!" from found_polls($3, $1, $2) as found (id)
order by id desc
