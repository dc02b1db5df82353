-- The rules of single items and the polls that closed before $1 (µs since 1970) and an hour ago, and that no archive
-- has; in the order of ids, up to $2.
select id from rule
where closes_at < least(timestamptz 'epoch' + $1::bigint / 1000000 * interval '1 second',
                        clock_timestamp() - interval '1 hour')
  and archive_id is null
order by id
limit $2
