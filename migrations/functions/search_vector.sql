-- What an index has of a name: its words, and of each run that is written without spaces, every pair of
-- neighbouring characters and the last character. So a search finds words by their beginnings, and such runs
-- by any part.
--
-- words: what search_text made of the name. It names no function of this schema: Postgres builds indexes
-- without its search_path.
-- The indexes item_words and rule_words are built with it. Never change what it returns: write another
-- function and other indexes, and drop these.
-- Called by everyone. Locks nothing.
create or replace function search_vector(words text) returns tsvector
    language plpgsql immutable strict parallel safe cost 1000 as $$
declare
    word text;
    found text[] := '{}';
    characters text[];
begin
    if octet_length(words) = char_length(words) and strpos(words, '>') = 0 then
        return array_to_tsvector(array_remove(string_to_array(words, ' '), ''));
    end if;
    foreach word in array string_to_array(words, ' ') loop
        if starts_with(word, '>') then
            characters := string_to_array(substr(word, 2), null);
            for at in 1..cardinality(characters) loop
                found := array_append(found, characters[at] || coalesce(characters[at + 1], ''));
            end loop;
        elsif word <> '' then
            -- Postgres takes words of up to 2,046 bytes.
            found := array_append(found, left(word, 500));
        end if;
    end loop;
    return array_to_tsvector(found);
end $$;

comment on function search_vector is 'what an index has of a name: its words, and pairs of characters that are written without spaces';
