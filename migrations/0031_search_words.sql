-- Searching by the words in names, whatever stands between them. Postgres takes a name apart by what it looks like:
-- "zebra/quagga" was one word (a path), as was an e-mail address, and what looked like an HTML tag was none. So
-- punctuation becomes spaces before. Only that of ASCII: which other characters are letters depends on the locale.
create function search_text(name text) returns text
    language sql immutable strict parallel safe
    return translate(name, '!"#$%&''()*+,-./:;<=>?@[\]^_`{|}~', '                                ');
comment on function search_text is 'a name as it is searched: its words with spaces between them';
-- Built before the old ones go: reads wait for that alone. (Saving counts waits while they are built.)
create index item_words_by_text on item using gin (to_tsvector('simple', search_text(name)));
create index rule_words_by_text on rule using gin (to_tsvector('simple', search_text(title))) where title is not null;
create function search_query(text text) returns tsquery
    language sql immutable strict parallel safe
    -- No word has a character that a query would take for its own: all of these are punctuation.
    return (
        select to_tsquery('simple', string_agg('''' || lexeme || ''':*', ' & '))
        from unnest(to_tsvector('simple', search_text(text)))
    );
comment on function search_query is 'what finds names that have all words of a text, or words that begin with them; null for a text without a word';
drop index item_words;
drop index rule_words;
alter index item_words_by_text rename to item_words;
alter index rule_words_by_text rename to rule_words;
