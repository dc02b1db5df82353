//! Draws reads: items, lists, polls, what voters hold, receipts.

use rand::Rng;
use rand::seq::IndexedRandom;
use reqwest::Method;
use serde_json::{Value, json};

use super::answers::{Expected, refused};
use super::draw::{Draw, Request, Target};
use super::model::ItemAt;
use super::requests::selection;

fn get(path: String, expected: Result<Expected, super::answers::Refused>) -> Request {
    Request::new(Method::GET, path, None, expected.unwrap_or_else(Expected::from))
}

impl Draw {
    pub fn read(&mut self) -> Request {
        match self.random.random_range(0..8) {
            0 => self.read_item(),
            1 => self.read_held(),
            2 => self.read_poll(),
            3 => self.read_selection(),
            4 => self.read_receipt(),
            5 => self.list_ids(),
            _ => self.list(),
        }
    }

    fn read_item(&mut self) -> Request {
        let target = self.item();
        let shown = target.at.map(|at| Expected::new(200, self.model.item_body(at)));
        get(
            format!("/v1/items/{}", target.path),
            shown.ok_or(refused("unknown-item")),
        )
    }

    fn read_held(&mut self) -> Request {
        let (target, voter) = (self.item(), self.voter());
        let expected = target.at.ok_or(refused("unknown-item")).and_then(|at| {
            let row = self.model.held_by(at, voter).ok_or(refused("no-vote"))?;
            let of = &self.model.rows[row];
            let body = json!({
                "vote_id": { "row": row }, "item_id": { "item": at }, "voter_id": voter, "value": of.value,
                "number": of.number,
            });
            Ok(Expected::new(200, body))
        });
        get(format!("/v1/items/{}/votes/{voter}", target.path), expected)
    }

    fn read_poll(&mut self) -> Request {
        let target = self.poll();
        let shown = target.at.map(|at| Expected::new(200, self.model.poll_body(at)));
        get(
            format!("/v1/polls/{}", target.path),
            shown.ok_or(refused("unknown-poll")),
        )
    }

    fn read_selection(&mut self) -> Request {
        let (target, voter) = (self.poll(), self.voter());
        let expected = target.at.ok_or(refused("unknown-poll"));
        let expected = expected.map(|poll| selection(poll, voter, &self.model.selection(poll, voter), None));
        get(format!("/v1/polls/{}/votes/{voter}", target.path), expected)
    }

    fn read_receipt(&mut self) -> Request {
        if self.model.rows.is_empty() {
            return get("/v1/votes/999999".to_owned(), Err(refused("unknown-vote")));
        }
        let row = self.random.random_range(0..self.model.rows.len());
        get(
            format!("/v1/votes/{}", self.model.rows[row].id),
            Ok(self.model.receipt(row)),
        )
    }

    /// Some items by ids and keys, also hidden ones.
    /// The answer leaves out unknown ones.
    fn list_ids(&mut self) -> Request {
        let items: Vec<ItemAt> = (0..self.model.items.len()).collect();
        let wanted: Vec<ItemAt> = items.choose_multiple(&mut self.random, 4).copied().collect();
        let mut targets: Vec<Target> = wanted.iter().map(|at| self.reference(*at)).collect();
        targets.push(self.item());
        let mut shown = wanted.clone();
        if let Some(at) = targets[wanted.len()].at {
            match wanted.contains(&at) {
                true => drop(targets.pop()),
                false => shown.push(at),
            }
        }
        let ids: Vec<&str> = targets.iter().map(|target| target.path.as_str()).collect();
        get(
            format!("/v1/items?ids={}", ids.join(",")),
            Ok(self.listed(&shown)),
        )
    }

    /// All items that are not hidden, or those of a name.
    fn list(&mut self) -> Request {
        let name = self.one_in(2).then(|| self.any(&["x", "y"]));
        let shown: Vec<ItemAt> = (0..self.model.items.len())
            .filter(|at| {
                let item = &self.model.items[*at];
                !item.is_hidden && name.is_none_or(|name| item.name == name)
            })
            .collect();
        let name = name.map_or(String::new(), |name| format!("&name={name}"));
        get(format!("/v1/items?limit=1000{name}"), Ok(self.listed(&shown)))
    }

    fn listed(&self, items: &[ItemAt]) -> Expected {
        let items: Vec<Value> = items.iter().map(|at| self.model.item_body(*at)).collect();
        Expected::new(200, json!({ "items": items, "next_after": null }))
    }
}
