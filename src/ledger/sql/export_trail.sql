-- The trail of administrative acts.
select id, acted_at, who, login, tool, address, what, target, outcome, problem, begun_id, details
from act
order by id
