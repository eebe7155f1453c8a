//! One direction of a connection: chunks on their way, in order.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use bytes::{Buf, Bytes};
use sharestream_base::Instant;

use super::Host;

/// Bytes on the way; beyond it the writer waits, as on a full socket.
pub(super) const BUFFERED_MAX: usize = 256 * 1024;

/// Which direction of which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PipeId {
    pub(super) connection: u64,
    /// True for what the side that connected sends.
    pub(super) by_opener: bool,
}

#[derive(Debug)]
struct Chunk {
    /// When it arrives; `None` while the link is cut.
    at: Option<Instant>,
    bytes: Bytes,
}

/// How the direction ends.
///
/// open --writer closes--> finishing (end, after what is on the way)
///   \--reset--> reset (end)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// The end of the stream arrives then; `None` while the link is cut.
    Finishing(Option<Instant>),
    Reset,
}

/// What a reader finds.
pub(super) enum Readable {
    Bytes(Bytes),
    /// Ask again at this time.
    At(Instant),
    /// Ask again when woken.
    Wait,
    EndOfStream,
    Reset,
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) from: Host,
    pub(super) to: Host,
    queue: VecDeque<Chunk>,
    buffered: usize,
    end: End,
    reader_gone: bool,
    last_at: Instant,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    pub(super) fn new(from: Host, to: Host, now: Instant) -> Self {
        Pipe {
            from,
            to,
            queue: VecDeque::new(),
            buffered: 0,
            end: End::Open,
            reader_gone: false,
            last_at: now,
            reader: None,
            writer: None,
        }
    }

    /// Bytes that fit; the waker is kept when none do. `None`: nobody will ever read them.
    pub(super) fn room(&mut self, waker: &Waker) -> Option<usize> {
        if self.end != End::Open || self.reader_gone {
            return None;
        }
        let room = BUFFERED_MAX.saturating_sub(self.buffered);
        if room == 0 {
            self.writer = Some(waker.clone());
        }
        Some(room)
    }

    /// Sends bytes that take `travel`; `None` while the link is cut.
    pub(super) fn send(&mut self, bytes: Bytes, now: Instant, travel: Option<Duration>) {
        self.buffered += bytes.len();
        let at = self.arrival(now, travel);
        self.queue.push_back(Chunk { at, bytes });
        self.wake_reader();
    }

    /// No more bytes follow.
    pub(super) fn finish(&mut self, now: Instant, travel: Option<Duration>) {
        if self.end == End::Open {
            self.end = End::Finishing(self.arrival(now, travel));
            self.wake_reader();
        }
    }

    /// At most `wanted` bytes that have arrived by `now`.
    pub(super) fn read(&mut self, now: Instant, wanted: usize, waker: &Waker) -> Readable {
        let (at, found) = match self.queue.front_mut() {
            Some(chunk) => (chunk.at, Some(chunk)),
            None => match self.end {
                End::Open => {
                    self.reader = Some(waker.clone());
                    return Readable::Wait;
                }
                End::Reset => return Readable::Reset,
                End::Finishing(at) => (at, None),
            },
        };
        // A change of the link wakes the reader even while it waits for a time.
        self.reader = Some(waker.clone());
        match at {
            None => Readable::Wait,
            Some(at) if at > now => Readable::At(at),
            Some(_) => match found {
                None => Readable::EndOfStream,
                Some(chunk) => {
                    let bytes = chunk.bytes.split_to(wanted.min(chunk.bytes.len()));
                    if !chunk.bytes.has_remaining() {
                        self.queue.pop_front();
                    }
                    self.buffered -= bytes.len();
                    if let Some(writer) = self.writer.take() {
                        writer.wake();
                    }
                    Readable::Bytes(bytes)
                }
            },
        }
    }

    /// The reader is gone: writing fails from now on.
    pub(super) fn abandon(&mut self) {
        self.reader_gone = true;
        self.queue.clear();
        self.buffered = 0;
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    /// Both ends are gone.
    pub(super) fn is_over(&self) -> bool {
        self.reader_gone && self.end != End::Open
    }

    pub(super) fn is_reset(&self) -> bool {
        self.end == End::Reset
    }

    /// Loses the last part (`kept` from 0.0 to 1.0 says how much stays) of what is on the way and ends with an error.
    pub(super) fn reset(&mut self, kept: f64) {
        let mut keep = (self.buffered as f64 * kept) as usize;
        for chunk in &mut self.queue {
            let stays = keep.min(chunk.bytes.len());
            chunk.bytes.truncate(stays);
            keep -= stays;
        }
        // What a cut link holds back is lost: nobody sends it again.
        self.queue.retain(|chunk| !chunk.bytes.is_empty() && chunk.at.is_some());
        self.buffered = self.queue.iter().map(|chunk| chunk.bytes.len()).sum();
        self.end = End::Reset;
        self.wake_reader();
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    /// The link is cut: what has not arrived waits for [`Pipe::release`].
    pub(super) fn hold(&mut self, now: Instant) {
        for chunk in &mut self.queue {
            chunk.at = chunk.at.filter(|at| *at <= now);
        }
        if let End::Finishing(at) = &mut self.end {
            *at = at.filter(|at| *at <= now);
        }
    }

    /// The link is whole again.
    pub(super) fn release(&mut self, now: Instant, mut travel: impl FnMut() -> Duration) {
        let mut last = self.last_at.max(now);
        for chunk in self.queue.iter_mut().filter(|chunk| chunk.at.is_none()) {
            last = last.max(now + travel());
            chunk.at = Some(last);
        }
        if self.end == End::Finishing(None) {
            last = last.max(now + travel());
            self.end = End::Finishing(Some(last));
        }
        self.last_at = last;
        self.wake_reader();
    }

    fn arrival(&mut self, now: Instant, travel: Option<Duration>) -> Option<Instant> {
        // Behind a held chunk nothing passes.
        if self.queue.back().is_some_and(|chunk| chunk.at.is_none()) {
            return None;
        }
        let at = self.last_at.max(now + travel?);
        self.last_at = at;
        Some(at)
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}
