//! Batches that one statement decides, as a writer gives them.
//! The tests choose which requests share a batch, and what came before them.

use tally::domain::{Digest, IdempotencyKey, ItemId, NewVote, PollId, Refusal, Value, VoteRequest, VoterId};
use tally::ledger::{Decision, Fullness, VoteWriter};

use super::assert_rules_hold;
use crate::helpers::stores::Stores;
use crate::helpers::tally::{server_ledger, vote};

/// A Postgres with these rules and items, whose ids go up from 1.
async fn stores_with(rules_and_items: &str) -> Stores {
    let stores = Stores::start().await;
    sqlx::raw_sql(rules_and_items)
        .execute(&stores.pool())
        .await
        .expect("items");
    stores
}

fn item(id: i64) -> ItemId {
    ItemId::new(id).expect("positive")
}

fn voter(name: &str) -> VoterId {
    VoterId::parse(name.to_owned()).expect("a voter")
}

fn cast(id: i64, voter: &str) -> VoteRequest {
    VoteRequest::Cast(vote(item(id), Some(voter)))
}

fn set(id: i64, name: &str, value: Option<Value>) -> VoteRequest {
    VoteRequest::Set {
        item_id: item(id),
        voter_id: voter(name),
        value,
    }
}

fn with_key(vote: NewVote, key: &str, body: &str) -> VoteRequest {
    VoteRequest::CastOnce {
        vote,
        ballot: None,
        key: Some(IdempotencyKey {
            key: Digest::of(&[key.as_bytes()]),
            body: Digest::of(&[body.as_bytes()]),
        }),
    }
}

async fn decided(writer: &mut VoteWriter, requests: &[VoteRequest]) -> Vec<Decision> {
    writer.decide(requests, &[]).await.expect("a decision").decisions
}

/// The numbers of the votes that were stored.
fn numbers(decisions: &[Decision]) -> Vec<Option<i64>> {
    let rows = decisions.iter().map(|decision| decision.stored().last());
    rows.map(|row| row.and_then(|row| row.number)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_item_has_its_own_places_and_numbers_whatever_the_order_of_their_rules() {
    // Every lookup finds the rules in another order than that of their ids.
    let stores = stores_with(
        "insert into rule (title) values (null), (null), (null);
         insert into item (id, name, rule_id) overriding system value
             values (3, 'any number', 1), (2, 'two', 2), (1, 'one', 3);
         insert into place (item_id, max_votes, is_numbered) values (3, null, true), (2, 2, true), (1, 1, true);
         alter function decide_votes set enable_hashjoin = off;
         alter function decide_votes set enable_mergejoin = off",
    )
    .await;
    let mut writer = server_ledger(&stores.database_url).writer();
    let up = Some(Value::UP);
    let decisions = decided(&mut writer, &[set(3, "ada", up), set(3, "bob", up)]).await;
    assert_eq!(numbers(&decisions), [Some(1), Some(2)]);
    let asked = [
        (1, "ada"),
        (1, "bob"),
        (2, "ada"),
        (2, "bob"),
        (2, "cy"),
        (3, "cy"),
    ];
    let decisions = decided(&mut writer, &asked.map(|(id, voter)| set(id, voter, up))).await;
    assert_eq!(
        numbers(&decisions),
        [Some(1), None, Some(1), Some(2), None, Some(3)]
    );
    for at in [1, 4] {
        assert_eq!(decisions[at], Decision::Refused(Refusal::Full));
    }
    assert_rules_hold(&stores.pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_on_a_full_item_keeps_its_place_whatever_was_refused_before_it() {
    let stores = stores_with(
        "insert into rule (title, max_choices) values ('poll', 2), (null, null);
         insert into item (name, rule_id) values ('a', 1), ('b', 1), ('c', 1), ('seat', 2);
         insert into place (item_id, max_votes) values (4, 1)",
    )
    .await;
    let mut writer = server_ledger(&stores.database_url).writer();
    decided(&mut writer, &[cast(4, "bob")]).await;
    // The function decided more rows than the change has, and took some away again.
    let selection = VoteRequest::Select {
        poll_id: PollId::new(1).expect("positive"),
        voter_id: voter("ada"),
        items: [1, 2, 3].map(item).to_vec(),
    };
    let decisions = decided(&mut writer, &[selection, set(4, "bob", Some(Value::DOWN))]).await;
    assert_eq!(decisions[0], Decision::Refused(Refusal::TooManyChoices));
    let values: Vec<i16> = decisions[1].stored().iter().map(|row| row.value).collect();
    assert_eq!(values, [-1, -1], "{decisions:?}");
    assert_rules_hold(&stores.pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn places_that_are_held_given_back_and_taken_in_one_batch_are_counted_right() {
    let stores = stores_with(
        "insert into rule (title) values (null);
         insert into item (name, rule_id) values ('two', 1);
         insert into place (item_id, max_votes) values (1, 2)",
    )
    .await;
    let mut writer = server_ledger(&stores.database_url).writer();
    decided(&mut writer, &[cast(1, "ada")]).await;
    // A repeat takes no second place.
    let decisions = decided(&mut writer, &[cast(1, "ada"), cast(1, "bob")]).await;
    assert!(
        matches!(decisions.as_slice(), [Decision::Repeated(_), Decision::Stored(_)]),
        "{decisions:?}"
    );
    assert_rules_hold(&stores.pool()).await;
    let decisions = decided(&mut writer, &[set(1, "ada", None), cast(1, "cy")]).await;
    assert!(
        matches!(decisions.as_slice(), [Decision::Stored(_), Decision::Stored(_)]),
        "{decisions:?}"
    );
    assert_rules_hold(&stores.pool()).await;
}

/// So many voters or keys that a sort without an order mixes them up.
const MANY: usize = 20;

fn of_many(request: impl Fn(&str) -> VoteRequest) -> Vec<VoteRequest> {
    (0..MANY).map(|number| request(&format!("{number:02}"))).collect()
}

/// The second request of each must be sent again, and stored nothing.
fn assert_first_is_stored(decisions: &[Decision]) {
    assert_eq!(decisions.len(), 2 * MANY);
    let (first, second) = decisions.split_at(MANY);
    for one in first {
        assert!(matches!(one, Decision::Stored(_)), "{decisions:?}");
    }
    for one in second {
        assert_eq!(*one, Decision::Again(Vec::new()), "{decisions:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_of_two_requests_with_one_voter_or_one_key_in_a_batch_is_decided() {
    let stores = stores_with("insert into item (name) values ('x')").await;
    let mut writer = server_ledger(&stores.database_url).writer();
    let first = of_many(|voter| cast(1, voter));
    let second = of_many(|voter| set(1, voter, Some(Value::DOWN)));
    assert_first_is_stored(&decided(&mut writer, &[first, second].concat()).await);

    let of_body = |body: &str| of_many(|key| with_key(vote(item(1), None), key, body));
    let (first, second) = (of_body("first"), of_body("second"));
    assert_first_is_stored(&decided(&mut writer, &[first.as_slice(), second.as_slice()].concat()).await);
    // Each key replays what its request stored.
    for one in decided(&mut writer, &first).await {
        assert!(matches!(one, Decision::Replayed(_)), "{one:?}");
    }
    for one in decided(&mut writer, &second).await {
        assert_eq!(one, Decision::Refused(Refusal::KeyReused));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_is_replayed_by_its_key_again_and_again_whatever_is_stored_beside_it() {
    let stores = stores_with("insert into item (name) values ('x')").await;
    let mut writer = server_ledger(&stores.database_url).writer();
    let [one, other] = ["one", "other"].map(|key| with_key(vote(item(1), None), key, "x"));
    let stored = decided(&mut writer, std::slice::from_ref(&one)).await;
    let replayed = Decision::Replayed(stored[0].stored().to_vec());
    let beside = decided(&mut writer, &[one.clone(), other]).await;
    assert_eq!(beside[0], replayed);
    assert!(matches!(beside[1], Decision::Stored(_)), "{beside:?}");
    assert_eq!(decided(&mut writer, &[one]).await, [replayed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_that_is_held_beside_others_is_repeated_with_its_own_row_by_a_key_too() {
    let stores = stores_with(
        "insert into rule (title, max_choices) values ('poll', 2);
         insert into item (name, rule_id) values ('a', 1), ('b', 1)",
    )
    .await;
    let mut writer = server_ledger(&stores.database_url).writer();
    let mut held = Vec::new();
    for choice in [1, 2] {
        let stored = decided(&mut writer, &[cast(choice, "ada")]).await;
        assert!(matches!(stored[0], Decision::Stored(_)), "{stored:?}");
        held.push((choice, Decision::Repeated(stored[0].stored().to_vec())));
    }
    for (choice, repeated) in held {
        assert_eq!(
            decided(&mut writer, &[cast(choice, "ada")]).await,
            std::slice::from_ref(&repeated)
        );
        let keyed = with_key(vote(item(choice), Some("ada")), &format!("key {choice}"), "x");
        // The second time, the key repeats it.
        for _ in 0..2 {
            assert_eq!(
                decided(&mut writer, std::slice::from_ref(&keyed)).await,
                std::slice::from_ref(&repeated)
            );
        }
    }
    assert_rules_hold(&stores.pool()).await;
}

/// The read and the function that decides must agree.
#[tokio::test(flavor = "multi_thread")]
async fn a_vote_is_refused_by_a_read_only_if_a_decision_would_refuse_it_for_want_of_a_place() {
    let stores = stores_with(
        "insert into rule (title, by_ballot, opens_at, closes_at) values
             (null, false, null, null),
             (null, false, now() + interval '1 h', null),
             (null, false, null, now() - interval '1 h'),
             (null, false, now() - interval '1 h', now() + interval '1 h'),
             (null, true, null, null),
             ('poll', false, null, null),
             (null, false, null, null),
             (null, false, null, null);
         insert into item (id, name, rule_id) overriding system value values
             (1, 'full', 1), (2, 'opens later', 2), (3, 'is closed', 3), (4, 'is open', 4), (5, 'by ballot', 5),
             (6, 'choice', 6), (7, 'has a place', 7), (8, 'numbered', 8), (9, 'plain', null);
         insert into place (item_id, max_votes, taken) select id, 1, 1 from item where id <= 6;
         insert into place (item_id, max_votes, taken, is_numbered) values (7, 2, 1, false), (8, null, 1, true);
         insert into vote (item_id, voter_id, value, change_number) values
             (1, 'holder', 1, 0), (1, 'back', 1, 0), (1, 'back', -1, 1),
             (1, 'again', 1, 0), (1, 'again', -1, 1), (1, 'again', 1, 2), (4, 'back', 1, 0),
             (1, 'nearly', 1, 996), (1, 'nearly', -1, 997), (1, 'spent', 1, 998), (1, 'spent', -1, 999)",
    )
    .await;
    let mut writer = server_ledger(&stores.database_url).writer();
    use Fullness::{Full, Refuses, Undecided};
    let asked = [
        (1, Some("new"), Refuses),
        (7, Some("new"), Undecided),
        (1, Some("holder"), Full),
        (1, None, Refuses),
        (1, Some("back"), Refuses),
        (1, Some("again"), Full),
        (1, Some("nearly"), Refuses),
        // This voter has no change left.
        (1, Some("spent"), Full),
        (2, Some("new"), Undecided),
        (3, Some("new"), Undecided),
        (4, Some("new"), Refuses),
        (4, Some("back"), Full),
        (5, None, Undecided),
        // In a poll, the voter may hold other choices.
        (6, Some("new"), Undecided),
        (8, Some("new"), Undecided),
        (9, Some("new"), Undecided),
        (99, Some("new"), Undecided),
    ];
    let votes = asked.map(|(id, name, _)| vote(item(id), name));
    let votes: Vec<&NewVote> = votes.iter().collect();
    let unconnected = writer.fullness(&votes).await.expect("no error");
    assert_eq!(unconnected, None);
    decided(&mut writer, &[set(9, "nobody", None)]).await;
    let fullness = writer.fullness(&votes).await.expect("an answer");
    assert_eq!(fullness, Some(asked.map(|(_, _, expected)| expected).to_vec()));
    // These store nothing, so each finds the items as they were.
    for (vote, (id, name, expected)) in votes.iter().zip(asked) {
        if expected != Undecided {
            let decision = &decided(&mut writer, &[VoteRequest::Cast((*vote).clone())]).await[0];
            let is_refused = *decision == Decision::Refused(Refusal::Full);
            assert_eq!(
                is_refused,
                expected == Refuses,
                "{name:?} on item {id}: {decision:?}"
            );
        }
    }
}
