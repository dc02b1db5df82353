-- Makes a query for names that have all words of a text, or words that begin with them.
--
-- text: what someone searches for. Returns null for a text without a word.
-- Called by everyone. Locks nothing.
create or replace function search_query(text text) returns tsquery
    language sql immutable strict parallel safe
    -- No word has a character that a query would take for its own: all of these are punctuation.
    return (
        select to_tsquery('simple', string_agg('''' || lexeme || ''':*', ' & '))
        from unnest(to_tsvector('simple', search_text(text)))
    );

comment on function search_query is 'what finds names that have all words of a text, or words that begin with them; null for a text without a word';
