//! What an answer must be, and the shortest reason why it is not.

use serde_json::{Value, json};
use tally::web::ProblemKind;

use super::model::{Cast, ItemAt, Model, PollAt, RowAt, Rule, Time};

/// A refusal that the model expects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refused {
    slug: &'static str,
    field: Option<&'static str>,
    /// Another refusal that is right, too.
    or: Option<&'static str>,
}

pub fn refused(slug: &'static str) -> Refused {
    Refused {
        slug,
        field: None,
        or: None,
    }
}

impl Refused {
    pub fn on(self, field: &'static str) -> Self {
        Self {
            field: Some(field),
            ..self
        }
    }

    pub fn or(self, other: &'static str) -> Self {
        Self {
            or: Some(other),
            ..self
        }
    }
}

/// What an answer must be. Compares only the named fields; null may also be absent.
/// `{"row": n}`, `{"item": n}` and `{"poll": n}` stand for ids that the ledger gives. `{"between":
/// [a, b]}` stands for a number, and `{"any": [a, b]}` for one of two.
#[derive(Clone, Debug)]
pub struct Expected {
    pub status: u16,
    pub body: Value,
    /// Another answer that is right, too.
    or: Option<&'static str>,
}

impl Expected {
    pub fn new(status: u16, body: Value) -> Self {
        Self {
            status,
            body,
            or: None,
        }
    }

    /// The same as one result of a batch.
    pub fn in_batch(self) -> Value {
        let mut result = self.body;
        result["status"] = json!(self.status);
        match self.or {
            Some(slug) => json!({ "any": [result, problem(slug, None).body] }),
            None => result,
        }
    }
}

impl From<Refused> for Expected {
    fn from(refused: Refused) -> Self {
        Self {
            or: refused.or,
            ..problem(refused.slug, refused.field)
        }
    }
}

fn problem(slug: &str, field: Option<&str>) -> Expected {
    let kind = ProblemKind::ALL.iter().find(|kind| kind.slug() == slug);
    let status = kind.expect("a problem type").status().as_u16();
    let kind = format!("/problems/{slug}");
    Expected::new(status, json!({ "type": kind, "status": status, "field": field }))
}

impl Model {
    /// The answer to a vote.
    pub fn vote_answer(&self, item: ItemAt, voter: Option<&str>, value: i64, cast: Cast) -> Expected {
        let (status, row, repeated) = match cast {
            Cast::Accepted(row) => (201, Some(row), None),
            Cast::Replayed(row) => (201, Some(row), Some(true)),
            Cast::Repeated(row) => (200, Some(row), Some(true)),
            Cast::Changed(row) | Cast::TakenBack(row) => (200, Some(row), None),
            Cast::Nothing => (200, None, Some(true)),
            Cast::Secret => (201, None, None),
        };
        let shown = match (cast, row) {
            (Cast::Secret, _) => value,
            (Cast::TakenBack(_), _) | (_, None) => 0,
            (_, Some(row)) => self.rows[row].value,
        };
        let mut body = json!({
            "vote_id": row.map(|row| json!({ "row": row })), "item_id": { "item": item }, "voter_id": voter,
            "value": shown, "number": row.and_then(|row| self.rows[row].number), "repeated": repeated,
        });
        self.show_counts(item, &mut body);
        Expected::new(status, body)
    }

    fn show_counts(&self, item: ItemAt, body: &mut Value) {
        let counts = (!self.hides_counts(item)).then(|| self.counts(item));
        for (at, name) in ["vote_count", "up_count", "down_count"].into_iter().enumerate() {
            body[name] = json!(counts.map(|counts| counts[at]));
        }
    }

    fn show_times(rule: Option<&Rule>, body: &mut Value) {
        for (name, time) in [
            ("opens_at", rule.and_then(|rule| rule.opens_at)),
            ("closes_at", rule.and_then(|rule| rule.closes_at)),
        ] {
            if time != Some(Time::Edited) {
                body[name] = json!(time.and_then(Time::text));
            }
        }
    }

    /// An item as a read shows it.
    pub fn item_body(&self, at: ItemAt) -> Value {
        let item = &self.items[at];
        let is = |yes: bool| yes.then_some(true);
        let mut body = json!({
            "id": { "item": at }, "name": item.name, "key": item.key, "hidden": is(item.is_hidden), "current": true,
            "down_votes": (!item.takes_down_votes).then_some(false), "max_votes": item.max_votes,
            "numbered": is(item.is_numbered), "by_ballot": is(self.rule(at).is_some_and(|rule| rule.by_ballot)),
            "poll_id": item.poll.map(|poll| json!({ "poll": poll })),
        });
        self.show_counts(at, &mut body);
        Self::show_times(self.rule(at), &mut body);
        body
    }

    /// A poll with its results.
    pub fn poll_body(&self, at: PollAt) -> Value {
        let poll = &self.polls[at];
        let rule = &self.rules[poll.rule];
        let is_closed = rule.untimely() == Some("closed");
        let shows = poll.shows_results || is_closed;
        let total: i64 = poll.choices.iter().map(|choice| self.counts(*choice)[0]).sum();
        let choices = poll.choices.iter().map(|choice| {
            let count = self.counts(*choice)[0];
            let share = (shows && total > 0).then(|| count as f64 / total as f64);
            json!({
                "item_id": { "item": choice }, "name": self.items[*choice].name,
                "vote_count": shows.then_some(count), "share": share,
            })
        });
        let is = |yes: bool| yes.then_some(true);
        let mut body = json!({
            "id": { "poll": at }, "title": poll.title, "key": poll.key, "hidden": is(poll.is_hidden),
            "by_ballot": is(rule.by_ballot), "secret": is(rule.is_secret), "max_choices": poll.max_choices,
            "state": rule.untimely().unwrap_or("open"), "results_before_close": poll.shows_results,
            "voter_count": shows.then(|| self.turnout(at)), "choices": choices.collect::<Vec<_>>(), "current": true,
        });
        if !is_closed {
            body["final"] = json!(false);
        }
        Self::show_times(Some(rule), &mut body);
        body
    }

    /// What the receipt of a row says.
    pub fn receipt(&self, row: RowAt) -> Expected {
        let of = &self.rows[row];
        if self.hides_counts(of.item) || self.rule(of.item).is_some_and(|rule| rule.is_secret) {
            return refused("unknown-vote").into();
        }
        let back = (of.change % 2 == 1).then_some(true);
        let body = json!({
            "vote_id": { "row": row }, "item_id": { "item": of.item }, "value": of.value, "number": of.number,
            "retraction": back,
        });
        Expected::new(200, body)
    }

    /// The first difference between an answer and what it must be.
    pub fn difference(&self, expected: &Expected, status: u16, answer: &Value) -> Result<(), String> {
        let first = self.differs_from(expected, status, answer);
        match expected.or {
            Some(slug) if first.is_err() => self.differs_from(&problem(slug, None), status, answer).or(first),
            _ => first,
        }
    }

    fn differs_from(&self, expected: &Expected, status: u16, answer: &Value) -> Result<(), String> {
        if status != expected.status {
            return Err(format!("status is {status}, not {}: {answer}", expected.status));
        }
        self.compare("", &expected.body, answer)
    }

    /// Compares an answer, or its part at `path`.
    pub fn compare(&self, path: &str, expected: &Value, got: &Value) -> Result<(), String> {
        let id = |name: &str| expected[name].as_u64().and_then(|at| usize::try_from(at).ok());
        if let Some(row) = id("row") {
            return same(path, &json!(self.rows[row].id), got);
        }
        if let Some(item) = id("item") {
            return same(path, &json!(self.items[item].id), got);
        }
        if let Some(poll) = id("poll") {
            return same(path, &json!(self.polls[poll].id), got);
        }
        if let Some([low, high]) = expected["between"].as_array().map(Vec::as_slice) {
            let is_between = got.as_i64() >= low.as_i64() && got.as_i64() <= high.as_i64();
            return if is_between {
                Ok(())
            } else {
                Err(format!("{path} is {got}, not from {low} to {high}"))
            };
        }
        if let Some([one, other]) = expected["any"].as_array().map(Vec::as_slice) {
            let first = self.compare(path, one, got);
            return first.or_else(|why| self.compare(path, other, got).map_err(|_| why));
        }
        match (expected, got) {
            (Value::Object(fields), Value::Object(of)) => {
                for (name, field) in fields {
                    self.compare(
                        &format!("{path}.{name}"),
                        field,
                        of.get(name).unwrap_or(&Value::Null),
                    )?;
                }
                Ok(())
            }
            (Value::Array(parts), Value::Array(of)) if parts.len() == of.len() => {
                for (at, (part, got)) in parts.iter().zip(of).enumerate() {
                    self.compare(&format!("{path}[{at}]"), part, got)?;
                }
                Ok(())
            }
            (Value::Array(parts), Value::Array(of)) => {
                Err(format!("{path} has {} entries, not {}", of.len(), parts.len()))
            }
            _ => same(path, expected, got),
        }
    }
}

fn same(path: &str, expected: &Value, got: &Value) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    Err(format!("{path} is {got}, not {expected}"))
}
