//! The pages of the data model, and docs/rights.md, against the catalogue.
//!
//! A heading `### ` names the tables. A table with the header `column` has a row for each column,
//! or for several. A row without a table's name is about the table of the row before.

use std::collections::{BTreeMap, BTreeSet};

use crate::helpers::stores::Stores;

/// The page, and those of further tables.
const PAGES: [&str; 3] = [
    include_str!("../../../../docs/data-model.md"),
    include_str!("../../../../docs/data-model-files.md"),
    include_str!("../../../../docs/data-model-events.md"),
];
const RIGHTS: &str = include_str!("../../../../docs/rights.md");

/// Table and column.
type Name = (String, String);

/// What the page or the catalogue says about a column.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    data_type: String,
    is_nullable: bool,
    is_identity: bool,
}

/// The parts of pages under this heading of the second level.
fn chapter(pages: &[&str], heading: &str) -> String {
    let heading = format!("\n## {heading}\n");
    let parts = pages.iter().filter_map(|page| page.split_once(&heading));
    let parts: Vec<&str> = parts
        .filter_map(|(_, after)| after.split("\n## ").next())
        .collect();
    assert!(!parts.is_empty(), "a chapter of this name");
    parts.join("\n")
}

/// The texts in backticks.
fn names(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The cells of a row.
fn cells(line: &str) -> Vec<&str> {
    line.trim()
        .trim_matches('|')
        .split(" | ")
        .map(str::trim)
        .collect()
}

/// The columns on the page, with what it says about those with a type.
fn described(types: &BTreeSet<String>) -> BTreeMap<Name, Option<Column>> {
    let mut described = BTreeMap::new();
    for section in chapter(&PAGES, "Postgres").split("\n### ").skip(1) {
        let (heading, body) = section.split_once('\n').expect("a section has a text");
        let tables = names(heading.split(':').next().expect("a heading"));
        let mut table = *tables.first().expect("the heading names a table");
        let mut is_of_columns = false;
        for line in body.lines() {
            if !line.starts_with('|') {
                is_of_columns = false;
                // A table of one row: the text names its only key.
                if let Some((_, after)) = line.split_once("the column `") {
                    let column = after.split('`').next().expect("a name");
                    described.insert((table.to_owned(), column.to_owned()), None);
                }
                continue;
            }
            let cells = cells(line);
            if cells[0] == "column" {
                is_of_columns = true;
            }
            if !is_of_columns || names(cells[0]).is_empty() {
                continue;
            }
            let said: Vec<&str> = cells[1]
                .split([',', ';'])
                .map(str::trim)
                .filter(|word| types.contains(*word))
                .collect();
            let columns = names(cells[0]);
            assert!(
                said.len() <= 1 || said.len() == columns.len(),
                "{line}: a type for each column, or one for all"
            );
            for (at, name) in columns.iter().enumerate() {
                let column = match name.split_once('.') {
                    Some((named, column)) => {
                        assert!(
                            tables.contains(&named),
                            "{line}: the heading does not name {named}"
                        );
                        table = named;
                        column
                    }
                    None => name,
                };
                let data_type = if said.len() > 1 {
                    said.get(at)
                } else {
                    said.first()
                };
                let column_says = data_type.map(|data_type| Column {
                    data_type: (*data_type).to_owned(),
                    is_nullable: cells[1].contains("null"),
                    is_identity: cells[1].contains("identity"),
                });
                let twice = described.insert((table.to_owned(), column.to_owned()), column_says);
                assert!(twice.is_none(), "{line}: {table}.{column} stands twice");
            }
        }
    }
    described
}

/// The columns of the catalogue. sqlx makes `_sqlx_migrations`.
async fn catalogue(stores: &Stores) -> BTreeMap<Name, Column> {
    let rows: Vec<(String, String, String, bool, bool)> = sqlx::query_as(
        "select relname::text, attname::text,
                replace(format_type(atttypid, atttypmod), 'timestamp with time zone', 'timestamptz'),
                not attnotnull, attidentity <> ''
         from pg_class
         join pg_attribute on attrelid = pg_class.oid and attnum > 0 and not attisdropped
         where relnamespace = current_schema()::regnamespace and relkind = 'r'
           and relname <> '_sqlx_migrations'",
    )
    .fetch_all(&stores.pool())
    .await
    .expect("Postgres answers");
    rows.into_iter()
        .map(|(table, column, data_type, is_nullable, is_identity)| {
            let says = Column {
                data_type,
                is_nullable,
                is_identity,
            };
            ((table, column), says)
        })
        .collect()
}

#[tokio::test]
async fn the_page_describes_each_column_that_there_is_and_no_other() {
    let stores = Stores::start().await;
    let catalogue = catalogue(&stores).await;
    let types = catalogue
        .values()
        .map(|column| column.data_type.clone())
        .collect();
    let described = described(&types);
    let dotted = |(table, column): &Name| format!("{table}.{column}");
    let missing: Vec<String> = catalogue
        .keys()
        .filter(|name| !described.contains_key(name))
        .map(dotted)
        .collect();
    let unknown: Vec<String> = described
        .keys()
        .filter(|name| !catalogue.contains_key(name))
        .map(dotted)
        .collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "docs/data-model.md lacks {missing:?}, and there is no {unknown:?}"
    );
    let wrong: Vec<String> = described
        .iter()
        .filter_map(|(name, said)| {
            let is = &catalogue[name];
            said.as_ref()
                .filter(|said| *said != is)
                .map(|said| format!("{}: it says {said:?}, and it is {is:?}", dotted(name)))
        })
        .collect();
    assert!(wrong.is_empty(), "docs/data-model.md: {wrong:#?}");
    let checked = described.values().flatten().count();
    assert!(checked > described.len() / 2, "the page gives types: {checked}");
}

#[tokio::test]
async fn the_page_says_who_may_do_what_with_tables_sequences_and_functions_that_there_are() {
    let stores = Stores::start().await;
    let there_are: Vec<String> = sqlx::query_scalar(
        "select relname::text from pg_class where relnamespace = current_schema()::regnamespace
         union all
         select proname::text from pg_proc where pronamespace = current_schema()::regnamespace",
    )
    .fetch_all(&stores.pool())
    .await
    .expect("Postgres answers");
    let chapter = chapter(&[RIGHTS], "Who may do what");
    let rows = chapter.lines().filter(|line| line.starts_with('|'));
    let named: Vec<&str> = rows.skip(2).flat_map(|row| names(cells(row)[0])).collect();
    assert!(
        named.contains(&"item") && named.contains(&"cast_votes"),
        "{named:?}"
    );
    for name in named {
        assert!(there_are.iter().any(|one| one == name), "there is no {name}");
    }
}
