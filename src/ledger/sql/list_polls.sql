-- The next $2 polls below $1 that are not hidden, newest first.
select id as "id!" from rule
where id < $1 and title is not null and not is_hidden
order by id desc
limit $2
