-- The next $2 items above $1 that are not hidden and match $3: each word of $3 begins a word of the name. And where
-- the next page begins, or null. $4: without the choices of polls. A text without a word finds nothing.
select ids as "ids!: Vec<i64>", up_to from search_items($3, $1, $2, $4)
