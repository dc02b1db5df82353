-- The next $2 polls below $1 that are not hidden and whose titles match $3, as in search_items.sql.
select id as "id!" from rule
where id < $1 and title is not null and not is_hidden
  and to_tsvector('simple', search_text(title)) @@ search_query($3)
order by id desc
limit $2
