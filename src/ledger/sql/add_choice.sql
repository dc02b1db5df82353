-- Adds a choice to a poll: the function add_choice, migrations/functions/add_choice.sql; says what became of it.
-- $1 poll, $2 the choice's name, $3 the most choices of a poll, $4 the act to note, into whose details the item goes.
select added.outcome as "outcome!", added.item_id as "item_id?",
       case when added.outcome = 'added' then
           note_act(jsonb_set($4::text::jsonb, '{details,item_id}', to_jsonb(added.item_id))::text, 'poll:' || $1::bigint)
       end as act_id
from add_choice($1, $2, $3) as added
