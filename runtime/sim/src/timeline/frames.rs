//! Chunks become frames, and frames become requests with their answers.
//!
//! A frame happens when its last byte is written; when the other side reads it, if ever, is not recorded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sharestream_wire::frame::{self, FrameDecoder, RequestHeader};

use crate::trace::{Event, What};

/// When something happened: virtual time, and the order within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub(super) at: Duration,
    sequence: usize,
}

/// A request and what came of it.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) connection: u64,
    pub(super) asker: Arc<str>,
    pub(super) asked: Arc<str>,
    pub(super) moment: Moment,
    pub(super) header: RequestHeader,
    pub(super) body: Bytes,
    /// The answer, as a frame without its length prefix.
    pub(super) answer: Option<(Moment, Bytes)>,
    /// When its connection ended, if it did.
    pub(super) closed_at: Option<Duration>,
}

/// Bytes that are no frame, or a frame that is no request and answers none.
#[derive(Clone, Debug)]
pub(super) struct Unreadable {
    pub(super) from: Arc<str>,
    pub(super) to: Arc<str>,
    pub(super) moment: Moment,
    pub(super) byte_count: usize,
}

/// Everything that a run recorded, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Recording {
    pub(super) exchanges: Vec<Exchange>,
    pub(super) notes: Vec<(Moment, String)>,
    pub(super) unreadable: Vec<Unreadable>,
    sequence: usize,
}

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    decoder: FrameDecoder,
    buffer: BytesMut,
    /// After an impossible length nobody can tell where the next frame begins.
    is_broken: bool,
}

impl Recording {
    /// Puts the chunks of `events` together. What the end of a connection cuts is no frame and is left out.
    pub(super) fn of(events: &[Event]) -> Recording {
        let mut recording = Recording::default();
        let mut directions: BTreeMap<(u64, bool), Direction> = BTreeMap::new();
        let mut open: BTreeMap<(u64, i32), usize> = BTreeMap::new();
        let mut closed: BTreeMap<u64, Duration> = BTreeMap::new();
        for event in events {
            match &event.what {
                What::Note(text) => {
                    let moment = recording.next_moment(event.at);
                    recording.notes.push((moment, text.clone()));
                }
                What::Closed { connection } => {
                    closed.insert(*connection, event.at);
                }
                What::Sent { connection, from, to, by_opener, bytes } => {
                    let direction = directions.entry((*connection, *by_opener)).or_default();
                    if direction.is_broken {
                        continue;
                    }
                    direction.buffer.extend_from_slice(bytes);
                    let link = Link { connection: *connection, from, to, at: event.at };
                    while let Some(frame) = recording.next_frame(direction, &link) {
                        if *by_opener {
                            recording.request(frame, &link, &mut open);
                        } else {
                            recording.answer(frame, &link, &mut open);
                        }
                    }
                } // What a process says about itself is not evidence.
            }
        }
        for exchange in &mut recording.exchanges {
            exchange.closed_at = closed.get(&exchange.connection).copied();
        }
        recording
    }

    fn next_moment(&mut self, at: Duration) -> Moment {
        self.sequence += 1;
        Moment { at, sequence: self.sequence }
    }

    fn next_frame(&mut self, direction: &mut Direction, link: &Link<'_>) -> Option<Bytes> {
        match direction.decoder.next(&mut direction.buffer) {
            Ok(frame) => frame,
            Err(_) => {
                direction.is_broken = true;
                self.not_read(direction.buffer.len(), link);
                direction.buffer.clear();
                None
            }
        }
    }

    fn request(&mut self, mut body: Bytes, link: &Link<'_>, open: &mut BTreeMap<(u64, i32), usize>) {
        let byte_count = body.len();
        let Ok(header) = frame::decode_request_header(&mut body) else {
            self.not_read(byte_count, link);
            return;
        };
        open.insert((link.connection, header.correlation_id), self.exchanges.len());
        let moment = self.next_moment(link.at);
        self.exchanges.push(Exchange {
            connection: link.connection,
            asker: Arc::clone(link.from),
            asked: Arc::clone(link.to),
            moment,
            header,
            body,
            answer: None,
            closed_at: None,
        });
    }

    fn answer(&mut self, frame: Bytes, link: &Link<'_>, open: &mut BTreeMap<(u64, i32), usize>) {
        let asked = frame::response_correlation_id(&frame)
            .ok()
            .and_then(|correlation_id| open.remove(&(link.connection, correlation_id)));
        let moment = self.next_moment(link.at);
        match asked.and_then(|index| self.exchanges.get_mut(index)) {
            Some(exchange) => exchange.answer = Some((moment, frame)),
            None => self.not_read(frame.len(), link),
        }
    }

    fn not_read(&mut self, byte_count: usize, link: &Link<'_>) {
        let moment = self.next_moment(link.at);
        let (from, to) = (Arc::clone(link.from), Arc::clone(link.to));
        self.unreadable.push(Unreadable { from, to, moment, byte_count });
    }
}

/// Where and when a chunk was written.
struct Link<'a> {
    connection: u64,
    from: &'a Arc<str>,
    to: &'a Arc<str>,
    at: Duration,
}
