//! Reads the scripts' headers, and the tables of fields and keys in `src/live`.

use std::collections::BTreeSet;
use std::path::Path;

use redis::Value;

/// A field and a script, or a script and a reply.
pub(super) type Pairs = BTreeSet<(String, String)>;

/// The text of a script of `lua/`, with its header.
/// `SCRIPTS` in `states.rs` may lack the header: `make mutants` leaves it out.
fn file(script: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("lua/{script}.lua"));
    std::fs::read_to_string(file).expect("a script")
}

/// All scripts of `lua/`. `counter` is none by itself.
pub(super) fn scripts() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    std::fs::read_dir(folder)
        .expect("the scripts")
        .flatten()
        .map(|file| {
            file.path()
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| name != "counter")
        .collect()
}

/// The replies that a script's header names.
pub(super) fn named_replies(script: &str) -> Pairs {
    let code = file(script);
    let header = code.lines().take_while(|line| line.starts_with("--"));
    let replies: Pairs = header
        .skip_while(|line| !line.starts_with("-- Repl"))
        .filter_map(|line| line.strip_prefix("--   ").filter(|line| !line.starts_with(' ')))
        .map(|line| (script.to_owned(), reply_name(line)))
        .collect();
    assert!(!replies.is_empty(), "the header of {script} names no reply");
    replies
}

fn reply_name(line: &str) -> String {
    for numbers in ["an integer", "{count, downs}", "{t, ms}"] {
        if line.starts_with(numbers) {
            return numbers.to_owned();
        }
    }
    line.split('\'').nth(1).expect("a reply in quotes").to_owned()
}

/// How a header would name this reply.
pub(super) fn name_of(reply: &Value) -> String {
    match reply {
        Value::Int(_) => "an integer".to_owned(),
        Value::Array(parts) if matches!(parts[..], [Value::Int(_), Value::Int(_)]) => {
            "{count, downs}".to_owned()
        }
        Value::Array(parts) => name_of(&parts[0]),
        word => redis::from_redis_value(word.clone()).expect("a word"),
    }
}

/// A row of a table in a module's documentation, cell by cell.
pub(super) fn rows(source: &str) -> Vec<Vec<&str>> {
    source
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `"))
        .map(|row| row.split('|').map(str::trim).collect())
        .collect()
}

fn in_backticks(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The pairs of a part and a script in a column of `src/live/counter.rs`' table.
pub(super) fn documented(column: usize) -> Pairs {
    let mut pairs = Pairs::new();
    for row in rows(include_str!("../../../../src/live/counter.rs")) {
        let field = row[0].trim_end_matches('`');
        pairs.extend(in_backticks(row[column]).map(|script| (field.to_owned(), script.to_owned())));
    }
    pairs
}
