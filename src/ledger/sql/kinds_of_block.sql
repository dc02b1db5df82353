-- How the votes on the items with ids from $1 to $2 are stored, as in insert_anonymous_votes.sql.
select array_agg(id) filter (where rule_id is null and takes_down_votes)     as plain,
       array_agg(id) filter (where rule_id is null and not takes_down_votes) as up_only,
       array_agg(id) filter (where rule_id is not null)                      as ruled
from item where id between $1 and $2
