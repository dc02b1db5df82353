-- A name as a reader compares it: in Unicode's composed form (NFC), without characters that show nothing, and
-- with one space in place of each run of blanks. Case counts. src/domain/text.rs has the same rules.
--
-- Called by edit_item and add_choice. Locks nothing.
create or replace function shown_name(name text) returns text
    language sql immutable parallel safe
    return btrim(regexp_replace(
        regexp_replace(
            regexp_replace(normalize(name collate "C", nfc),
                '[\u0009-\u000d\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]', ' ', 'g'),
            '[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f'
            '\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd'
            '\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]',
            '', 'g'),
        ' +', ' ', 'g'));

comment on function shown_name is 'a name as a reader compares it: without invisible characters, with single blanks';
