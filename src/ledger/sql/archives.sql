-- The archives, the newest first; $1: only this one (null: all), $2: the most of them. Times in µs since 1970.
select id, (extract(epoch from created_at) * 1000000)::bigint as "created_at!", until_vote_id,
       (select count(*) from archived_item where archived_item.archive_id = archive.id) as "items!",
       (select count(*) from archived_rule join rule on rule.id = archived_rule.rule_id
        where archived_rule.archive_id = archive.id and rule.title is not null) as "polls!",
       file_hash, file_bytes, vote_total, net_total, first_vote_id, last_vote_id, dropped_total, dropped_vote_id,
       ended_at is not null as "is_ended!", cancelled_at is not null as "is_cancelled!"
from archive
where $1::bigint is null or id = $1
order by id desc
limit $2
