//! `throttle.lua`: windows, and the places in them.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redis::{AsyncCommands, Value};

use super::Scripts;

/// A throttle: its limit, and its interval in ms.
type Throttle = (u64, u64);

fn plan(attempts: &[Vec<u16>]) -> Vec<u8> {
    attempts
        .iter()
        .flatten()
        .flat_map(|number| number.to_be_bytes())
        .collect()
}

/// For each attempt: `None`, or the throttle's number and the milliseconds to wait.
async fn throttle(
    scripts: &mut Scripts,
    keys: &[&str],
    throttles: &[Throttle],
    attempts: &[Vec<u16>],
) -> Vec<Option<(usize, u64)>> {
    let script = redis::Script::new(script!("throttle"));
    let mut call = script.prepare_invoke();
    for key in keys {
        call.key(*key);
    }
    call.arg(plan(attempts));
    for (limit, interval) in throttles {
        call.arg(*limit).arg(*interval);
    }
    let replies: Vec<Value> = call.invoke_async(&mut scripts.connection).await.expect("a reply");
    replies
        .into_iter()
        .map(|reply| match reply {
            Value::Int(0) => None,
            refused => Some(redis::from_redis_value(refused).expect("a refusal")),
        })
        .collect()
}

async fn left(scripts: &mut Scripts, key: &str) -> i64 {
    scripts.connection.pttl(key).await.expect("Redis answers")
}

#[tokio::test]
async fn an_attempt_takes_a_place_in_each_of_its_windows_and_a_refused_one_in_none() {
    let mut scripts = Scripts::start().await;
    let throttles = [(2, 60_000), (3, 600_000)];
    let keys = ["ada", "eve", "item"];
    let attempts = [
        vec![1, 3],
        vec![1, 3],
        vec![1, 3],
        vec![2, 3],
        vec![2, 3],
        vec![2, 0],
    ];
    let replies = throttle(&mut scripts, &keys, &throttles, &attempts).await;
    let refused: Vec<Option<usize>> = replies.iter().map(|reply| reply.map(|(t, _)| t)).collect();
    assert_eq!(refused, [None, None, Some(1), None, Some(2), None]);
    for (key, taken) in [("ada", 2), ("eve", 2), ("item", 3)] {
        let held: i64 = scripts.connection.get(key).await.expect("Redis answers");
        assert_eq!(held, taken, "{key}");
    }
    assert!((1..=60_000).contains(&left(&mut scripts, "ada").await));
    assert!((60_001..=600_000).contains(&left(&mut scripts, "item").await));
    // Both of Ada's windows are full. The reply names the one that is full for longer.
    let replies = throttle(&mut scripts, &keys, &throttles, &[vec![1, 3]]).await;
    assert!(
        matches!(replies[..], [Some((2, 60_001..=600_000))]),
        "{replies:?}"
    );
    // In any order of the throttles.
    let replies = throttle(&mut scripts, &keys, &[throttles[1], throttles[0]], &[vec![3, 1]]).await;
    assert!(
        matches!(replies[..], [Some((1, 60_001..=600_000))]),
        "{replies:?}"
    );
}

#[tokio::test]
async fn a_window_ends_with_its_interval_however_often_it_is_tried_in_between() {
    let mut scripts = Scripts::start().await;
    let throttles = [(1, 60_000)];
    throttle(&mut scripts, &["w"], &throttles, &[vec![1]]).await;
    let () = scripts
        .connection
        .pexpire("w", 5000)
        .await
        .expect("Redis answers");
    for _ in 0..3 {
        let replies = throttle(&mut scripts, &["w"], &throttles, &[vec![1]]).await;
        assert!(matches!(replies[..], [Some((1, 1..=5000))]), "{replies:?}");
        assert!(left(&mut scripts, "w").await <= 5000);
    }
    let () = scripts.connection.del("w").await.expect("Redis answers");
    assert_eq!(
        throttle(&mut scripts, &["w"], &throttles, &[vec![1]]).await,
        [None]
    );
}

#[tokio::test]
async fn a_window_that_would_last_too_long_or_for_ever_is_cut_to_its_interval() {
    let mut scripts = Scripts::start().await;
    let throttles = [(1, 60_000)];
    for command in [&["SET", "w", "1"][..], &["SET", "w", "1", "PX", "3600000"]] {
        let () = redis::cmd(command[0])
            .arg(&command[1..])
            .query_async(&mut scripts.connection)
            .await
            .expect("Redis answers");
        let replies = throttle(&mut scripts, &["w"], &throttles, &[vec![1]]).await;
        assert_eq!(replies, [Some((1, 60_000))], "{command:?}");
        assert!(
            (1..=60_000).contains(&left(&mut scripts, "w").await),
            "{command:?}"
        );
    }
}

#[tokio::test]
async fn what_is_no_number_is_written_over() {
    let mut scripts = Scripts::start().await;
    for command in [&["SET", "w", "x"][..], &["HSET", "w", "a", "b"]] {
        let () = redis::cmd("DEL")
            .arg("w")
            .query_async(&mut scripts.connection)
            .await
            .expect("Redis answers");
        let () = redis::cmd(command[0])
            .arg(&command[1..])
            .query_async(&mut scripts.connection)
            .await
            .expect("Redis answers");
        let replies = throttle(&mut scripts, &["w"], &[(1, 60_000)], &[vec![1], vec![1]]).await;
        assert_eq!(replies, [None, Some((1, 60_000))], "{command:?}");
        assert!(
            (1..=60_000).contains(&left(&mut scripts, "w").await),
            "{command:?}"
        );
    }
}

/// What the script should decide on the next attempt.
fn expected(taken: &mut [u64], throttles: &[Throttle], attempt: &[u16]) -> bool {
    let windows = || {
        let numbered = attempt.iter().zip(throttles);
        numbered.filter_map(|(number, throttle)| Some((usize::from(*number).checked_sub(1)?, throttle)))
    };
    if windows().any(|(window, (limit, _))| taken[window] >= *limit) {
        return false;
    }
    for (window, _) in windows() {
        taken[window] += 1;
    }
    true
}

#[tokio::test]
async fn calls_of_any_size_admit_what_one_attempt_after_the_other_would() {
    let mut scripts = Scripts::start().await;
    let mut random = StdRng::seed_from_u64(7);
    for round in 0..40 {
        let throttles: Vec<Throttle> = (0..random.random_range(1..=8))
            .map(|_| (random.random_range(1..6), 3_600_000))
            .collect();
        // Four windows for each throttle.
        let names: Vec<String> = (0..4 * throttles.len())
            .map(|at| format!("{round}:{at}"))
            .collect();
        let keys: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut taken = vec![0; keys.len()];
        for _ in 0..4 {
            let attempts: Vec<Vec<u16>> = (0..random.random_range(1..20))
                .map(|_| {
                    let numbers = 0..throttles.len();
                    let mut number = |throttle: usize| match random.random_range(0..5) {
                        0 => 0,
                        one => u16::try_from(4 * throttle + one).expect("small"),
                    };
                    numbers.map(&mut number).collect()
                })
                .collect();
            let admitted: Vec<bool> = throttle(&mut scripts, &keys, &throttles, &attempts)
                .await
                .iter()
                .map(Option::is_none)
                .collect();
            let right: Vec<bool> = attempts
                .iter()
                .map(|attempt| expected(&mut taken, &throttles, attempt))
                .collect();
            assert_eq!(admitted, right, "{throttles:?} {attempts:?}");
        }
        for (key, taken) in keys.iter().zip(taken) {
            let held: Option<u64> = scripts.connection.get(*key).await.expect("Redis answers");
            assert_eq!(held.unwrap_or_default(), taken, "{key}");
        }
    }
}
