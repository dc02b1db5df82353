-- Makes a query for names that have all words of a text, or words that begin with them. Of a run that is
-- written without spaces, names have all pairs of neighbouring characters.
--
-- text: what someone searches for. Returns null for a text without a word.
-- Called by everyone. Locks nothing.
create or replace function search_query(text text) returns tsquery
    language sql immutable strict parallel safe
    -- No word has a character that a query would take for its own: all of these are punctuation.
    return (
        select string_agg('''' || term || ''':*', ' & ')::tsquery
        from unnest(string_to_array(search_text(text), ' ')) as word,
        lateral (
            select left(word, 500) as term where word <> '' and not starts_with(word, '>')
            union all
            -- The first character is the ">". A run of one character has no pair.
            select substr(word, at, 2) from generate_series(2, greatest(char_length(word) - 1, 2)) as at
            where starts_with(word, '>')
        ) as of_word
    );

comment on function search_query is 'what finds names that have all words of a text, or words that begin with them; null for a text without a word';
