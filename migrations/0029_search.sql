-- Searching items by the words in their names, and polls by those in their titles; and lists of polls. Votes
-- change none of these columns, so saving counts writes nothing to these indexes.
create index item_words on item using gin (to_tsvector('simple', name));
create index rule_words on rule using gin (to_tsvector('simple', title)) where title is not null;
-- Polls that lists show, newest first. Most rules belong to single items.
create index rule_listed on rule (id desc) where title is not null and not is_hidden;
