//! Batching: many waiting requests become one call to the stores. A task takes all requests that
//! wait in a bounded queue, asks the stores once for all of them, answers each, and takes the next
//! batch. There is no timer: an idle system adds no delay, and a busy system makes large batches.

use tokio::sync::mpsc;
use tokio::task::yield_now;

/// How often a task lets other requests join its batch before it works on the batch. It stops as
/// soon as none has joined, so this only bounds a stream of requests that never pauses.
const JOIN_LIMIT_ROUNDS: usize = 8;

/// Takes the requests that wait, up to `limit`, and lets others join while more come. Returns how
/// many it took: 0 means that the queue is closed and empty.
pub async fn take<Request>(
    queue: &mut mpsc::Receiver<Request>,
    batch: &mut Vec<Request>,
    limit: usize,
) -> usize {
    let mut taken = queue.recv_many(batch, limit).await;
    if taken == 0 {
        return 0;
    }
    for _ in 0..JOIN_LIMIT_ROUNDS {
        // Requests that are ready to run enter the queue now. Otherwise a batch would often
        // hold one request while all others wait for the next batch.
        yield_now().await;
        let before = taken;
        while taken < limit
            && let Ok(one) = queue.try_recv()
        {
            batch.push(one);
            taken += 1;
        }
        if taken == before {
            break;
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_batch_has_what_waits_up_to_its_limit_and_the_next_has_the_rest() {
        let (sender, mut queue) = mpsc::channel(10);
        for request in 1..=3 {
            sender.try_send(request).expect("a place");
        }
        let mut batch = Vec::new();
        assert_eq!(take(&mut queue, &mut batch, 2).await, 2);
        assert_eq!(batch, [1, 2]);
        assert_eq!(take(&mut queue, &mut batch, 2).await, 1);
        assert_eq!(batch, [1, 2, 3]);
        drop(sender);
        assert_eq!(take(&mut queue, &mut batch, 2).await, 0);
    }

    /// Each is ready to run when the one before has been taken.
    #[tokio::test]
    async fn requests_that_are_ready_join_the_batch_as_long_as_more_come_up_to_so_many_rounds() {
        for (others, expected) in [(3, 4), (100, 1 + JOIN_LIMIT_ROUNDS)] {
            let (sender, mut queue) = mpsc::channel(1000);
            sender.try_send(0).expect("a place");
            tokio::spawn(async move {
                for request in 1..=others {
                    sender.try_send(request).expect("a place");
                    yield_now().await;
                }
                // The queue stays open.
                std::future::pending::<()>().await;
            });
            let mut batch = Vec::new();
            assert_eq!(take(&mut queue, &mut batch, 1000).await, expected);
            assert!(batch.into_iter().eq(0..expected));
        }
    }

    #[tokio::test]
    async fn no_more_join_than_the_limit_allows() {
        let (sender, mut queue) = mpsc::channel(1000);
        sender.try_send(0).expect("a place");
        tokio::spawn(async move {
            for request in 1..100 {
                sender.try_send(request).expect("a place");
            }
        });
        let mut batch = Vec::new();
        assert_eq!(take(&mut queue, &mut batch, 10).await, 10);
        assert!(batch.into_iter().eq(0..10));
        assert_eq!(queue.recv().await, Some(10), "the others still wait");
    }
}
