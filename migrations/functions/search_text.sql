-- A name in the form for searches: its words with spaces between them.
--
-- Postgres splits a name by what it looks like. "zebra/quagga" would be one word (a path), as would
-- an e-mail address, and what looks like an HTML tag would be none. So punctuation becomes spaces
-- first. Only ASCII punctuation does: which other characters are letters depends on the locale.
--
-- The indexes item_words and rule_words are built with it. Never change what it returns: write another
-- function and other indexes, and drop these.
-- Called by everyone. Locks nothing.
create or replace function search_text(name text) returns text
    language sql immutable strict parallel safe
    return translate(name, '!"#$%&''()*+,-./:;<=>?@[\]^_`{|}~', '                                ');

comment on function search_text is 'a name as it is searched: its words with spaces between them';
