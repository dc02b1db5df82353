//! Batching: a task takes all requests that wait in a bounded queue, asks the stores once
//! for all of them, answers each, and takes the next batch. There is no timer: an idle
//! system adds no delay, and a busy system makes large batches.

use tokio::sync::mpsc;
use tokio::task::yield_now;

/// How often a task lets other requests join its batch before it works on the batch. It
/// stops as soon as none has joined, so this only bounds a stream of requests that never
/// pauses.
const JOIN_LIMIT_ROUNDS: usize = 8;

/// Takes the requests that wait, up to `limit`, and lets others join while more come.
/// Returns how many it took; 0 when the queue is closed and empty.
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
