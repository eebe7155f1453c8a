//! The channel between two tasks: one sender, one receiver, bounded by rows and by payload bytes.
//!
//! Full means wait. Two exceptions keep it free of deadlock: a batch that is larger than the bound passes when no
//! other batch is queued, and barriers and ends, which hold nothing, never wait (at most two epochs are open, so
//! there are few of them).

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

use crate::element::StreamElement;

/// How much a channel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) rows_max: usize,
    pub(crate) bytes_max: usize,
}

/// What one element takes of the bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    rows: usize,
    bytes: usize,
}

/// The receiver was dropped: its task has ended, and says why itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiverGone;

#[derive(Debug)]
struct State {
    queue: VecDeque<(StreamElement, Load)>,
    used: Load,
    bounds: Bounds,
    sender_gone: bool,
    receiver_gone: bool,
    sender_waker: Option<Waker>,
    receiver_waker: Option<Waker>,
    /// Received for another process and not taken there: they are still held against the bounds.
    on_the_way: VecDeque<Load>,
    /// The end was received for another process.
    end_passed: bool,
    /// Elements that were received.
    taken_count: u64,
    /// Whoever watches that count.
    taken_waker: Option<Waker>,
}

impl State {
    fn release(&mut self, load: Load) {
        self.used.rows -= load.rows;
        self.used.bytes -= load.bytes;
    }

    fn has_room_for(&self, load: Load) -> bool {
        load.rows == 0
            || self.used.rows == 0
            || (self.used.rows + load.rows <= self.bounds.rows_max
                && self.used.bytes + load.bytes <= self.bounds.bytes_max)
    }
}

/// The sending end. Dropping it ends the channel.
#[derive(Debug)]
pub(crate) struct Sender(Arc<Mutex<State>>);

/// The receiving end. Dropping it fails the sender.
#[derive(Debug)]
pub(crate) struct Receiver(Arc<Mutex<State>>);

pub(crate) fn channel(bounds: Bounds) -> (Sender, Receiver) {
    let state = Arc::new(Mutex::new(State {
        queue: VecDeque::new(),
        used: Load::default(),
        bounds,
        sender_gone: false,
        receiver_gone: false,
        sender_waker: None,
        receiver_waker: None,
        on_the_way: VecDeque::new(),
        end_passed: false,
        taken_count: 0,
        taken_waker: None,
    }));
    (Sender(state.clone()), Receiver(state))
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // No code that can panic runs under the lock, so a poisoned state is whole.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sender {
    /// Queues `element`; waits while the channel is full. A dropped call drops the element.
    pub(crate) async fn send(&mut self, element: StreamElement) -> Result<(), ReceiverGone> {
        let load = load_of(&element);
        let mut element = Some(element);
        poll_fn(|cx| {
            let mut state = lock(&self.0);
            if state.receiver_gone {
                return Poll::Ready(Err(ReceiverGone));
            }
            if !state.has_room_for(load) {
                state.sender_waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            if let Some(element) = element.take() {
                state.used.rows += load.rows;
                state.used.bytes += load.bytes;
                state.queue.push_back((element, load));
            }
            let waker = state.receiver_waker.take();
            drop(state);
            waker.inspect(Waker::wake_by_ref);
            Poll::Ready(Ok(()))
        })
        .await
    }
}

impl Receiver {
    /// The next element; `None` when the sender is gone and everything it sent was received.
    pub(crate) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamElement>> {
        let mut state = lock(&self.0);
        match state.queue.pop_front() {
            Some((element, load)) => {
                state.release(load);
                state.taken_count += 1;
                let wakers = [state.sender_waker.take(), state.taken_waker.take()];
                drop(state);
                wakers.into_iter().flatten().for_each(Waker::wake);
                Poll::Ready(Some(element))
            }
            None if state.sender_gone => Poll::Ready(None),
            None => {
                state.receiver_waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Receiver {
    /// As [`Receiver::poll_receive`], for a receiver in another process: the element stays counted until
    /// [`Passage::taken`] says that it was taken there, so that the bounds hold over both.
    pub(crate) fn poll_pass_on(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamElement>> {
        let mut state = lock(&self.0);
        match state.queue.pop_front() {
            Some((element, load)) => {
                state.on_the_way.push_back(load);
                state.end_passed |= matches!(element, StreamElement::End);
                Poll::Ready(Some(element))
            }
            None if state.sender_gone => Poll::Ready(None),
            None => {
                state.receiver_waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The other end of what [`Receiver::poll_pass_on`] takes.
    pub(crate) fn passage(&self) -> Passage {
        Passage(self.0.clone())
    }
}

/// Elements on their way to another process.
#[derive(Debug)]
pub(crate) struct Passage(Arc<Mutex<State>>);

impl Passage {
    /// The oldest `count` of them were taken. False: there are not so many.
    #[must_use]
    pub(crate) fn taken(&self, count: u64) -> bool {
        let mut state = lock(&self.0);
        if count > state.on_the_way.len() as u64 {
            return false;
        }
        for _ in 0..count {
            if let Some(load) = state.on_the_way.pop_front() {
                state.release(load);
            }
        }
        let waker = state.sender_waker.take();
        drop(state);
        waker.inspect(Waker::wake_by_ref);
        true
    }

    /// Whether everything up to the end was passed on and taken.
    pub(crate) fn is_through(&self) -> bool {
        let state = lock(&self.0);
        state.end_passed && state.on_the_way.is_empty()
    }
}

/// Watches how many elements a receiver has taken.
#[derive(Debug)]
pub(crate) struct TakenWatch(Arc<Mutex<State>>);

impl TakenWatch {
    /// The count, once it is above `seen`; never, once the receiver is gone. Cancel safe.
    pub(crate) async fn beyond(&self, seen: u64) -> u64 {
        poll_fn(|cx| {
            let mut state = lock(&self.0);
            if state.taken_count > seen {
                return Poll::Ready(state.taken_count);
            }
            state.taken_waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Sender {
    /// Watches what becomes of what is sent.
    pub(crate) fn taken(&self) -> TakenWatch {
        TakenWatch(self.0.clone())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.sender_gone = true;
        let waker = state.receiver_waker.take();
        drop(state);
        waker.inspect(Waker::wake_by_ref);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.receiver_gone = true;
        let queue = std::mem::take(&mut state.queue);
        let waker = state.sender_waker.take();
        drop(state);
        drop(queue);
        waker.inspect(Waker::wake_by_ref);
    }
}

fn load_of(element: &StreamElement) -> Load {
    match element {
        StreamElement::Batch(batch) | StreamElement::Rejected(batch) | StreamElement::Parked(batch) => {
            Load { rows: batch.num_rows(), bytes: payload_bytes(batch) }
        }
        StreamElement::Barrier(_) | StreamElement::End => Load::default(),
    }
}

/// Bytes that the rows of a batch refer to. Views count what they show, not the fetch buffer that many batches
/// share.
fn payload_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(column_bytes).sum()
}

fn column_bytes(column: &Arc<dyn Array>) -> usize {
    let viewed = |views: &[u128]| -> usize {
        // The low 32 bits of a view are the length of the value.
        views.iter().map(|view| size_of::<u128>() + (*view as u32) as usize).sum()
    };
    match column.data_type() {
        DataType::BinaryView => viewed(column.as_binary_view().views()),
        DataType::Utf8View => viewed(column.as_string_view().views()),
        // Values of a dictionary are few and shared.
        DataType::Dictionary(key, _) => column.len() * key.primitive_width().unwrap_or(4),
        _ => match column.to_data().get_slice_memory_size() {
            Ok(bytes) => bytes,
            // A type that arrow cannot measure by slice: the whole buffers, an upper bound.
            Err(_) => column.get_array_memory_size(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow_array::{BinaryViewArray, Int64Array};
    use arrow_schema::{Field, Schema};
    use sharestream_base::ids::CheckpointId;
    use sharestream_base::{Clock, OwnedTask, Spawner, TaskKind};

    use super::*;
    use crate::element::Barrier;

    fn batch(rows: i64) -> StreamElement {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false)]));
        let column = Int64Array::from_iter_values(0..rows);
        StreamElement::Batch(RecordBatch::try_new(schema, vec![Arc::new(column)]).unwrap())
    }

    async fn receive(receiver: &mut Receiver) -> Option<StreamElement> {
        poll_fn(|cx| receiver.poll_receive(cx)).await
    }

    async fn waits(sender: &mut Sender, element: StreamElement) -> bool {
        Clock::system().timeout(Duration::from_secs(1), sender.send(element)).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_channel_makes_the_sender_wait_by_rows_and_by_bytes() {
        for bounds in [Bounds { rows_max: 10, bytes_max: 1 << 20 }, Bounds { rows_max: 1_000, bytes_max: 80 }]
        {
            let (mut sender, mut receiver) = channel(bounds);
            sender.send(batch(6)).await.unwrap();
            sender.send(batch(4)).await.unwrap();
            assert!(waits(&mut sender, batch(1)).await, "{bounds:?}");
            let barrier = Barrier { checkpoint: CheckpointId(1), waits_until: None, watermark: None };
            sender.send(StreamElement::Barrier(barrier)).await.unwrap();
            receive(&mut receiver).await.unwrap();
            sender.send(batch(6)).await.unwrap();
            assert!(waits(&mut sender, batch(1)).await, "{bounds:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_above_the_bound_passes_alone() {
        let (mut sender, mut receiver) = channel(Bounds { rows_max: 2, bytes_max: 16 });
        sender.send(batch(100)).await.unwrap();
        assert!(waits(&mut sender, batch(1)).await);
        assert!(
            matches!(receive(&mut receiver).await, Some(StreamElement::Batch(rows)) if rows.num_rows() == 100)
        );
        sender.send(batch(100)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_sender_and_a_waiting_receiver_are_woken() {
        let (mut sender, mut receiver) = channel(Bounds { rows_max: 1, bytes_max: 1 });
        let mut task = OwnedTask::spawn(&Spawner::system(), "sender", TaskKind::Job, async move {
            for _ in 0..1_000 {
                sender.send(batch(1)).await.unwrap();
            }
        });
        let mut count = 0;
        while let Some(element) = receive(&mut receiver).await {
            assert!(matches!(element, StreamElement::Batch(_)));
            count += 1;
        }
        assert_eq!(count, 1_000);
        task.join().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_receiver_fails_the_waiting_sender() {
        let (mut sender, receiver) = channel(Bounds { rows_max: 1, bytes_max: 1 });
        sender.send(batch(1)).await.unwrap();
        let mut task = OwnedTask::spawn(&Spawner::system(), "sender", TaskKind::Job, async move {
            sender.send(batch(1)).await
        });
        tokio::task::yield_now().await;
        drop(receiver);
        assert_eq!(task.join().await.unwrap(), Some(Err(ReceiverGone)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_passed_on_counts_until_it_was_taken() {
        let (mut sender, mut receiver) = channel(Bounds { rows_max: 10, bytes_max: 1 << 20 });
        let passage = receiver.passage();
        sender.send(batch(6)).await.unwrap();
        sender.send(batch(4)).await.unwrap();
        for _ in 0..2 {
            poll_fn(|cx| receiver.poll_pass_on(cx)).await.unwrap();
        }
        assert!(waits(&mut sender, batch(1)).await);
        assert!(!passage.taken(3), "only two are on their way");
        assert!(passage.taken(1));
        sender.send(batch(6)).await.unwrap();
        assert!(waits(&mut sender, batch(1)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_taken_is_counted() {
        let (mut sender, mut receiver) = channel(Bounds { rows_max: 10, bytes_max: 1 << 20 });
        let taken = sender.taken();
        sender.send(batch(1)).await.unwrap();
        sender.send(batch(1)).await.unwrap();
        let clock = Clock::system();
        assert!(clock.timeout(Duration::from_secs(1), taken.beyond(0)).await.is_err());
        receive(&mut receiver).await.unwrap();
        assert_eq!(taken.beyond(0).await, 1);
        receive(&mut receiver).await.unwrap();
        assert_eq!(taken.beyond(1).await, 2);
    }

    #[test]
    fn views_count_what_they_show() {
        let long = [7u8; 1_000];
        let column: Arc<dyn Array> =
            Arc::new(BinaryViewArray::from_iter_values([&long[..], &long[..], b"x"]));
        assert_eq!(column_bytes(&column), 3 * 16 + 2_001);
        assert_eq!(column_bytes(&column.slice(2, 1)), 16 + 1);
    }
}
