//! Draws requests that create items, polls and ballots.

use rand::Rng;
use reqwest::Method;
use serde_json::{Value, json};

use super::answers::{Expected, Refused, refused};
use super::draw::{Draw, Request, Target};
use super::model::{Item, ItemAt, Model, Poll, PollAt, Rule, Time};

/// Few names, so that a second item with a key is sometimes equal to the first.
const NAMES: [&str; 3] = ["x", "y", "é z"];

/// What is asked of a new item.
#[derive(Clone, Debug)]
pub struct NewItem {
    pub name: String,
    pub key: Option<String>,
    pub takes_down_votes: bool,
    pub max_votes: Option<usize>,
    pub is_numbered: bool,
    pub rule: Rule,
}

impl NewItem {
    pub fn plain(name: &str, key: Option<&str>) -> Self {
        Self {
            name: name.to_owned(),
            key: key.map(str::to_owned),
            takes_down_votes: true,
            max_votes: None,
            is_numbered: false,
            rule: Rule::default(),
        }
    }

    fn body(&self) -> Value {
        let mut body = json!({ "name": self.name });
        for (name, value) in [
            ("key", json!(self.key)),
            ("down_votes", json!((!self.takes_down_votes).then_some(false))),
            ("max_votes", json!(self.max_votes)),
            ("numbered", json!(self.is_numbered.then_some(true))),
            ("by_ballot", json!(self.rule.by_ballot.then_some(true))),
        ] {
            if !value.is_null() {
                body[name] = value;
            }
        }
        add_times(&self.rule, &mut body);
        body
    }
}

/// What is asked of a new poll.
#[derive(Clone, Debug)]
pub struct NewPoll {
    pub title: String,
    pub key: Option<String>,
    pub choices: usize,
    pub max_choices: Option<usize>,
    pub shows_results: bool,
    pub rule: Rule,
}

impl NewPoll {
    pub fn with(max_choices: Option<usize>, rule: Rule) -> Self {
        Self {
            title: "x".to_owned(),
            key: None,
            choices: 3,
            max_choices,
            shows_results: true,
            rule,
        }
    }

    fn names(&self) -> Vec<String> {
        (0..self.choices).map(|at| format!("choice {at}")).collect()
    }

    fn body(&self) -> Value {
        let mut body = json!({
            "title": self.title, "choices": self.names(), "max_choices": self.max_choices.unwrap_or(0),
            "by_ballot": self.rule.by_ballot, "secret": self.rule.is_secret, "results_before_close": self.shows_results,
        });
        if let Some(key) = &self.key {
            body["key"] = json!(key);
        }
        add_times(&self.rule, &mut body);
        body
    }
}

fn add_times(rule: &Rule, body: &mut Value) {
    for (name, time) in [("opens_at", rule.opens_at), ("closes_at", rule.closes_at)] {
        if let Some(time) = time {
            body[name] = json!(time.text());
        }
    }
}

/// Refuses a rule that would close before it opens.
pub fn check_order(rule: &Rule) -> Result<(), Refused> {
    match (rule.opens_at, rule.closes_at) {
        (Some(opens), Some(closes)) if closes <= opens => Err(refused("invalid-value").on("closes_at")),
        _ => Ok(()),
    }
}

impl Model {
    pub fn add_item(&mut self, new: NewItem) -> ItemAt {
        let Rule {
            opens_at,
            closes_at,
            by_ballot,
            ..
        } = new.rule;
        let needs_rule = new.max_votes.is_some()
            || new.is_numbered
            || opens_at.is_some()
            || closes_at.is_some()
            || by_ballot;
        let rule = needs_rule.then(|| {
            self.rules.push(new.rule);
            self.rules.len() - 1
        });
        self.items.push(Item {
            id: 0,
            name: new.name,
            key: new.key,
            is_hidden: false,
            takes_down_votes: new.takes_down_votes,
            max_votes: new.max_votes,
            is_numbered: new.is_numbered,
            rule,
            poll: None,
            last_number: 0,
        });
        self.items.len() - 1
    }

    fn add_poll(&mut self, new: &NewPoll) -> PollAt {
        let (rule, poll) = (self.rules.len(), self.polls.len());
        self.rules.push(new.rule.clone());
        let first = self.items.len();
        for name in new.names() {
            let choice = NewItem {
                takes_down_votes: false,
                ..NewItem::plain(&name, None)
            };
            let at = self.add_item(choice);
            (self.items[at].rule, self.items[at].poll) = (Some(rule), Some(poll));
        }
        self.polls.push(Poll {
            id: 0,
            title: new.title.clone(),
            key: new.key.clone(),
            is_hidden: false,
            max_choices: new.max_choices,
            shows_results: new.shows_results,
            rule,
            choices: (first..self.items.len()).collect(),
        });
        poll
    }

    /// The answer to a new item.
    fn make_item(&mut self, new: &NewItem) -> Result<Expected, Refused> {
        check_order(&new.rule)?;
        let Some(at) = new.key.as_deref().and_then(|key| self.item_with_key(key)) else {
            let at = self.add_item(new.clone());
            return Ok(Expected::new(201, self.item_body(at)));
        };
        let item = &self.items[at];
        let rule = self.rule(at).map(|rule| Rule {
            ballots_made: 0,
            ..rule.clone()
        });
        let is_same = (
            &item.name,
            item.takes_down_votes,
            item.max_votes,
            item.is_numbered,
            rule.unwrap_or_default(),
        ) == (
            &new.name,
            new.takes_down_votes,
            new.max_votes,
            new.is_numbered,
            new.rule.clone(),
        );
        if !is_same {
            return Err(refused("key-taken").on("key"));
        }
        Ok(Expected::new(200, self.item_body(at)))
    }

    /// The answer to a new poll.
    fn make_poll(&mut self, new: &NewPoll) -> Result<Expected, Refused> {
        check_order(&new.rule)?;
        let at = self
            .polls
            .iter()
            .position(|poll| new.key.is_some() && poll.key == new.key);
        let Some(at) = at else {
            let at = self.add_poll(new);
            return Ok(Expected::new(201, self.poll_body(at)));
        };
        let poll = &self.polls[at];
        let names: Vec<String> = poll
            .choices
            .iter()
            .map(|choice| self.items[*choice].name.clone())
            .collect();
        let rule = Rule {
            ballots_made: 0,
            ..self.rules[poll.rule].clone()
        };
        let is_same = (&poll.title, names, poll.max_choices, poll.shows_results, rule)
            == (
                &new.title,
                new.names(),
                new.max_choices,
                new.shows_results,
                new.rule.clone(),
            );
        if !is_same {
            return Err(refused("key-taken").on("key"));
        }
        Ok(Expected::new(200, self.poll_body(at)))
    }
}

impl Draw {
    fn time(&mut self) -> Option<Time> {
        self.any(&[None, Some(Time::Past), Some(Time::Future), Some(Time::Later)])
    }

    pub fn name(&mut self) -> String {
        self.any(&NAMES).to_owned()
    }

    pub fn make_item_of(&mut self, new: &NewItem) -> Request {
        let expected = self.model.make_item(new).unwrap_or_else(Expected::from);
        Request::new(Method::POST, "/v1/items".to_owned(), Some(new.body()), expected)
    }

    pub fn make_poll_of(&mut self, new: &NewPoll) -> Request {
        let expected = self.model.make_poll(new).unwrap_or_else(Expected::from);
        Request::new(Method::POST, "/v1/polls".to_owned(), Some(new.body()), expected)
    }

    /// A new item, or one whose key exists, mostly with the same fields.
    pub fn make_item(&mut self) -> Request {
        let at = self.random.random_range(0..self.model.items.len());
        let item = self.model.items[at].clone();
        let mut new = NewItem {
            key: item.key.clone(),
            takes_down_votes: item.takes_down_votes,
            max_votes: item.max_votes,
            is_numbered: item.is_numbered,
            rule: self.model.rule(at).cloned().unwrap_or_default(),
            ..NewItem::plain(&item.name, None)
        };
        new.rule.ballots_made = 0;
        if item.key.is_none() || self.one_in(3) {
            let key = self.new_key();
            new = NewItem {
                key: self.any(&[Some(key), None]),
                takes_down_votes: !self.one_in(3),
                max_votes: self.any(&[None, Some(1), Some(3)]),
                is_numbered: self.one_in(3),
                ..NewItem::plain(&self.name(), None)
            };
            if self.any(&[true, false]) {
                (new.rule.opens_at, new.rule.closes_at) = (self.time(), self.time());
            }
            new.rule.by_ballot = self.one_in(4);
        }
        // The model does not know the time of an edit, and no client would send it by chance.
        if new.rule.closes_at == Some(Time::Edited) {
            new.rule.closes_at = Some(Time::Later);
        }
        match self.random.random_range(0..6) {
            0 => new.takes_down_votes = !new.takes_down_votes,
            1 => new.name = self.name(),
            2 => new.max_votes = Some(2),
            _ => {}
        }
        self.make_item_of(&new)
    }

    /// A new poll, or one whose key exists.
    pub fn make_poll(&mut self) -> Request {
        let at = self.random.random_range(0..self.model.polls.len());
        let poll = self.model.polls[at].clone();
        let mut new = NewPoll {
            title: poll.title,
            key: poll.key,
            choices: poll.choices.len(),
            max_choices: poll.max_choices,
            shows_results: poll.shows_results,
            rule: Rule {
                ballots_made: 0,
                ..self.model.rules[poll.rule].clone()
            },
        };
        if new.rule.closes_at == Some(Time::Edited) {
            new.rule.closes_at = Some(Time::Later);
        }
        if self.one_in(3) {
            new.title = self.name();
        }
        self.make_poll_of(&new)
    }

    /// Ballots of an item or a poll.
    pub fn make_ballots(&mut self) -> Request {
        let of_poll = self.one_in(2);
        let (target, kind) = if of_poll {
            (self.poll(), "polls")
        } else {
            (self.item(), "items")
        };
        let count = self.random.random_range(0..=4);
        let expires_at = self.any(&[None, None, Some(Time::Past), Some(Time::Future)]);
        self.make_ballots_of(kind, &target, count, expires_at)
    }

    /// Ballots of the item or poll at this path of `items` or `polls`.
    pub fn make_ballots_of(
        &mut self,
        kind: &str,
        target: &Target,
        count: usize,
        expires_at: Option<Time>,
    ) -> Request {
        let of_poll = kind == "polls";
        let rule = target.at.map(|at| match of_poll {
            true => Some(self.model.polls[at].rule),
            // A choice has its poll's ballots.
            false => self.model.items[at]
                .rule
                .filter(|_| self.model.items[at].poll.is_none()),
        });
        let takes_them = |rule: &usize| self.model.rules[*rule].by_ballot;
        let unknown = if of_poll { "unknown-poll" } else { "unknown-item" };
        let made = match rule {
            None if target.key.is_some() => Err(refused(unknown)),
            _ if count == 0 => Err(refused("invalid-value").on("count")),
            None => Err(refused(unknown)),
            Some(rule) => rule
                .filter(takes_them)
                .ok_or(refused("ballot-not-taken").on("ballot")),
        };
        let path = format!("/v1/{kind}/{}/ballots", target.path);
        let time = expires_at.and_then(Time::text);
        let body = json!({ "count": count, "expires_at": time });
        match made {
            Err(refused) => Request::new(Method::POST, path, Some(body), refused.into()),
            Ok(rule) => {
                self.model.rules[rule].ballots_made += count;
                let expected = Expected::new(201, json!({ "expires_at": time }));
                let ballots = Some((rule, expires_at == Some(Time::Past)));
                Request {
                    ballots,
                    ..Request::new(Method::POST, path, Some(body), expected)
                }
            }
        }
    }
}
