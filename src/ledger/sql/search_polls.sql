-- The next $2 polls below $1 that are not hidden and whose titles match $3, newest first, as in search_items.sql.
select ids as "ids!: Vec<i64>", up_to from search_polls($3, $1, $2)
