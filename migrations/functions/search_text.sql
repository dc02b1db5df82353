-- A name in the form for searches: its words with single or several spaces between them.
--
-- Neither case, nor accents, nor Unicode's form, nor characters that nobody sees make a difference: "Cafe" and
-- "CAFÉ" in any form become "cafe". Punctuation becomes spaces. A run of characters that are written without
-- spaces (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese, Tibetan, Javanese, emoji and other signs) is a
-- word of its own, and begins with ">" here.
--
-- It uses nothing that depends on the database's locale: in "C", Postgres knows only the letters of ASCII. And
-- it is one expression, so that Postgres puts it in place of the call.
--
-- The indexes item_words and rule_words are built with it. Never change what it returns: write another
-- function and other indexes, and drop these.
-- Called by everyone. Locks nothing.
create or replace function search_text(name text) returns text
    language sql immutable parallel safe
    return case
        -- Most names are plain ASCII, and need no tables.
        when octet_length(name) = char_length(name) then
            translate(lower(name collate "C"), E'!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~\t\n\013\f\r', repeat(' ', 37))
        else regexp_replace(regexp_replace(normalize(
            replace(replace(replace(replace(replace(replace(replace(replace(
            -- Letters whose other case or plain form Unicode's decomposition does not give.
            translate(
                -- Accents, and what nobody sees.
                lower(regexp_replace(normalize(name collate "C", nfkd),
                    '[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670'
                    '\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f'
                    '\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff'
                    '\ufff0-\ufffb\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff]', '', 'g')),
                'ØøŁłĐđÐðĦħıŦŧŊƏƐƆƁƊƘƔ'
                 || 'ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩς'
                 || 'АБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯЂЄЅІЈЉЊЋЏҐҒҖҚҢҮҰҲҶҺӘӨ'
                 || 'ԱԲԳԴԵԶԷԸԹԺԻԼԽԾԿՀՁՂՃՄՅՆՇՈՉՊՋՌՍՎՏՐՑՒՓՔՕՖ'
                 || U&'\0643\064A\0649\0660\0661\0662\0663\0664\0665\0666\0667\0668\0669\06F0\06F1\06F2\06F3\06F4\06F5\06F6\06F7\06F8\06F9',
                'oollddddhhittŋəɛɔɓɗƙɣ'
                 || 'αβγδεζηθικλμνξοπρστυφχψωσ'
                 || 'абвгдежзиклмнопрстуфхцчшщъыьэюяђєѕіјљњћџґғҗқңүұҳҷһәө'
                 || 'աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ'
                 || U&'\06A9\06CC\06CC01234567890123456789'),
            'ẞ', 'ss'), 'ß', 'ss'), 'Æ', 'ae'), 'æ', 'ae'), 'Œ', 'oe'), 'œ', 'oe'), 'Þ', 'th'), 'þ', 'th'), nfc),
            -- Punctuation.
            '[\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00a1\u00a6-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u00d7\u00f7'
            '\u02c2-\u02c5\u02d2-\u02df\u037e\u0387\u055a-\u055f\u0589\u058a\u05be\u05c0\u05c3\u05c6\u05f3\u05f4\u0609-\u060d'
            '\u061b\u061e\u061f\u066a-\u066d\u06d4\u0700-\u070d\u0964\u0965\u0970\u0df4\u0e4f\u0e5a\u0e5b\u0f04-\u0f14\u0f3a-\u0f3d'
            '\u104a-\u104f\u10fb\u1360-\u1368\u1400\u166d\u166e\u1680\u16eb-\u16ed\u17d4-\u17d6\u17d8-\u17da\u1800-\u180a'
            '\u2000-\u206f\u2800\u2e00-\u2e7f\u3000-\u3003\u3008-\u3020\u3030\u303d\u30fb\ufffc\ufffd]+', ' ', 'g'),
            -- What is written without spaces.
            '[\u00a2-\u00a5\u0e00-\u109f\u1100-\u11ff\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\u20a0-\u20cf'
            '\u2190-\u27ff\u2900-\u2bff\u2e80-\u2fff\u3004-\u3007\u3021-\u302f\u3031-\u303c\u303e-\ua4cf\ua960-\ua9ff\uaa60-\uaadf'
            '\uac00-\ud7ff\uf900-\ufaff\U00016f00-\U00018d8f\U0001b000-\U0001b2ff\U0001d000-\U0001d24f\U0001f000-\U0001faff'
            '\U00020000-\U0003ffff]+', ' >\& ', 'g')
    end;

comment on function search_text is 'a name as it is searched: its words with spaces between them';
