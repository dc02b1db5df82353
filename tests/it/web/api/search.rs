//! Searches in the scripts that people write, through an index.

use serde_json::Value;
use sqlx::Row;

use crate::helpers::tally::Tally;

/// A script, a name in it, what finds the name, and what does not.
const SCRIPTS: [(&str, &str, &[&str], &[&str]); 26] = [
    (
        "Latin",
        "Café Crème",
        &["cafe", "CAFÉ", "Cafe\u{301}", "creme caf"],
        &["afe", "tea"],
    ),
    (
        "German",
        "Große Straße",
        &["grosse", "GROSSE STRASSE", "strasse", "straße"],
        &["gross x"],
    ),
    (
        "Scandinavian",
        "Smørrebrød Łódź",
        &["smorre", "SMØR", "lodz", "Łódź"],
        &["rebrod"],
    ),
    (
        "Turkish",
        "İstanbul ılık",
        &["istanbul", "ISTANBUL", "ilik", "İSTANBUL"],
        &["stanbul"],
    ),
    ("Vietnamese", "Phở bò", &["pho", "PHỞ", "bo pho"], &["ho"]),
    (
        "Greek",
        "Σίσυφος και Ήλιος",
        &["σισυφος", "ΣΊΣΥΦΟΣ", "ηλιο", "ΗΛΙΟΣ"],
        &["συφος"],
    ),
    (
        "Cyrillic",
        "Ёлка и Йогурт",
        &["елка", "ЁЛКА", "йогурт", "ЙОГУРТ"],
        &["гурт"],
    ),
    ("Kazakh", "Қазақ Ұлы", &["қазақ", "ҚАЗАҚ", "ұлы"], &["зақ"]),
    ("Armenian", "Հայաստան", &["հայա", "ՀԱՅԱՍՏԱՆ"], &["ստան"]),
    ("Georgian", "საქართველო", &["საქა"], &["ველო"]),
    ("Hebrew", "שָׁלוֹם עולם", &["שלום", "שָׁלוֹם", "עול"], &["לום"]),
    ("Arabic", "أَهْلاً وسهلا", &["اهلا", "أهلا", "وسه"], &["سهلا"]),
    (
        "Persian",
        "می\u{200c}خواهم كتاب",
        &["میخواهم", "می\u{200c}خواهم", "کتاب", "كتاب"],
        &["خواهم"],
    ),
    ("Devanagari", "नमस्ते दुनिया", &["नमस्ते", "दुनि"], &["स्ते"]),
    ("Bengali", "বাংলা ভাষা", &["বাংলা", "ভাষা"], &["ংলা"]),
    ("Tamil", "தமிழ் மொழி", &["தமிழ்", "மொழி"], &["ழி"]),
    ("Ethiopic", "ሰላም፡ልዑል", &["ሰላም", "ልዑ"], &["ላም"]),
    (
        "Chinese",
        "東京都庁の投票",
        &["東京", "都庁", "京都庁", "庁", "投票"],
        &["東庁", "大阪"],
    ),
    (
        "Simplified Chinese",
        "今晚吃什么？火锅",
        &["火锅", "什么", "今晚吃", "锅"],
        &["吃锅"],
    ),
    (
        "Japanese",
        "ｶﾞﾗｽのラーメン",
        &["ラーメン", "ガラス", "ーメ"],
        &["寿司"],
    ),
    (
        "Korean",
        "한국어를배우다",
        &[
            "한국",
            "국어",
            "배우",
            "\u{1112}\u{1161}\u{11ab}\u{1100}\u{116e}\u{11a8}",
        ],
        &["한어"],
    ),
    ("Thai", "กรุงเทพมหานคร", &["กรุงเทพ", "มหานคร", "เทพ"], &["พระ"]),
    ("Lao", "ວຽງຈັນ", &["ວຽງ", "ຈັນ"], &["ປາ"]),
    ("Khmer", "ភ្នំពេញ", &["ភ្នំ", "ពេញ"], &["សៀម"]),
    ("Burmese", "ရန်ကုန်မြို့", &["ရန်ကုန်", "မြို့"], &["ပဲခူး"]),
    (
        "emoji",
        "Pizza🍕Night 👩🏽\u{200d}💻",
        &["🍕", "pizza", "night 🍕", "👩\u{200d}💻", "👩🏽\u{200d}💻"],
        &["🍺"],
    ),
];

async fn found(tally: &Tally, of: &str, field: &str, text: &str) -> Vec<String> {
    let url = format!("{}/v1/{of}", tally.base);
    let request = tally.http.get(url).query(&[("search", text)]);
    let answer = request.send().await.expect("an answer");
    let list: Value = answer.json().await.expect("JSON");
    let all = list[of].as_array().unwrap_or_else(|| panic!("{list}")).iter();
    all.map(|one| one[field].as_str().expect("a name").to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_finds_names_in_each_script_and_what_is_written_without_spaces_by_any_part() {
    let tally = Tally::start().await;
    for (_, name, _, _) in SCRIPTS {
        tally.item(name).await;
        let poll = serde_json::json!({ "title": name, "choices": ["x"] });
        tally.post("/v1/polls", &poll).await;
    }
    for (script, name, finding, missing) in SCRIPTS {
        for text in finding {
            assert_eq!(
                found(&tally, "items", "name", text).await,
                [name],
                "{script}: {text}"
            );
            assert_eq!(
                found(&tally, "polls", "title", text).await,
                [name],
                "{script}: {text}"
            );
        }
        for text in missing {
            let found = found(&tally, "items", "name", text).await;
            assert!(!found.contains(&name.to_owned()), "{script}: {text}");
        }
    }
    // Whole names find themselves, in both of Unicode's forms and without their accents' case.
    for (script, name, _, _) in SCRIPTS {
        for form in ["nfc", "nfd", "nfkc", "nfkd"] {
            let text: String = sqlx::query_scalar(&format!("select normalize($1, {form})"))
                .bind(name)
                .fetch_one(&tally.pool)
                .await
                .expect("Postgres answers");
            assert_eq!(
                found(&tally, "items", "name", &text).await,
                [name],
                "{script} {form}"
            );
        }
    }
}

/// Texts that say nothing, or that the functions of a search could stumble over.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_name_or_a_search_has_it_is_no_error() {
    let tally = Tally::start().await;
    for name in [
        "'\\:*&|!()<->",
        ">東京 > x",
        "\u{fdfa}\u{fdfa}",
        &"\u{1d160}".repeat(200),
        &"\u{fdfa}".repeat(200),
        &"\u{33ae}".repeat(200),
        &"庁".repeat(200),
        &"é".repeat(200),
        "\u{fffd}\u{fffe}\u{10ffff}",
    ] {
        tally.item(name).await;
        let found = found(&tally, "items", "name", name).await;
        let says_nothing = name.starts_with('\'') || name.starts_with('\u{fffd}');
        assert!(says_nothing || found.contains(&name.to_owned()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_reads_the_items_that_it_finds_and_not_all_others() {
    /// Names in the table.
    const NAMES: i64 = 20_000;
    /// The most rows that a search for a rare word may read: those found, their index entries, and their rules;
    /// and the next names.
    const READS_LIMIT: i64 = 500;
    let tally = Tally::start().await;
    sqlx::query(
        "insert into item (name)
         select 'common ' || number || case when number % 400 = 0 then ' rare 東京都' else '' end
         from generate_series(1, $1) as number",
    )
    .bind(NAMES)
    .execute(&tally.pool)
    .await
    .expect("items");
    sqlx::query("insert into rule (title) select name from item")
        .execute(&tally.pool)
        .await
        .expect("polls");
    // As the server's sessions are.
    let mut connection = tally.pool.acquire().await.expect("a connection");
    sqlx::raw_sql("set enable_seqscan = off; set enable_bitmapscan = off; set jit = off")
        .execute(&mut *connection)
        .await
        .expect("settings");
    for (statement, limit) in [
        (include_str!("../../../../src/ledger/sql/search_items.sql"), 1),
        (include_str!("../../../../src/ledger/sql/search_items.sql"), 1000),
        (include_str!("../../../../src/ledger/sql/search_polls.sql"), 1),
        (include_str!("../../../../src/ledger/sql/search_polls.sql"), 1000),
    ] {
        for text in ["rare", "東京", "京", "rar 東京都 common"] {
            let is_of_items = statement.contains("search_items(");
            sqlx::raw_sql("begin")
                .execute(&mut *connection)
                .await
                .expect("begun");
            let sum = "select coalesce(sum(seq_tup_read) + sum(coalesce(idx_tup_fetch, 0)), 0)::bigint
                       from pg_stat_xact_user_tables";
            let before: i64 = sqlx::query_scalar(sum)
                .fetch_one(&mut *connection)
                .await
                .expect("Postgres answers");
            let query = sqlx::query(statement)
                .bind(if is_of_items { 0 } else { i64::MAX })
                .bind(i64::from(limit))
                .bind(text);
            let query = if is_of_items { query.bind(true) } else { query };
            let found = query.fetch_one(&mut *connection).await.expect("a search");
            let ids: Vec<i64> = found.get(0);
            let after: i64 = sqlx::query_scalar(sum)
                .fetch_one(&mut *connection)
                .await
                .expect("Postgres answers");
            sqlx::raw_sql("commit")
                .execute(&mut *connection)
                .await
                .expect("ended");
            assert_eq!(ids.len() as i64, i64::from(limit).min(NAMES / 400), "{text}");
            let read = after - before;
            // First it looks at the next names, five times a page.
            let limit = READS_LIMIT + 12 * i64::from(limit);
            assert!(read <= limit, "{text}: {read} rows were read: {statement}");
        }
    }
}
