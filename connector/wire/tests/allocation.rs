//! No bytes make a decoder allocate more than a small multiple of their own length. A binary of its own with one
//! test, because it counts all allocations of the process.

#![allow(clippy::unwrap_used, reason = "a failed unwrap in a helper of a test fails the test")]

use std::alloc::System;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, HeaderVersion, Message, Request};
use sharestream_base::Rng;
use sharestream_wire::codec::put_unsigned_varint;
use sharestream_wire::frame;
use sharestream_wire::messages::share_acknowledge::ShareAcknowledgeRequest;
use sharestream_wire::messages::share_fetch::{ShareFetchRequest, ShareFetchResponse};
use sharestream_wire::messages::write_share_group_state::WriteShareGroupStateRequest;
use sharestream_wire::records;
use sharestream_wire::shape::{Part, Shape};
use sharestream_wire::txn_share_acknowledge::{TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[path = "wire/every_api.rs"]
mod every_api;

use every_api::{Visit, every_api};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocated bytes allowed for each byte of input, and for the text of an error.
const FACTOR: usize = 16;
const ERROR_BYTES: usize = 8 * 1024;

/// Allocated bytes while a decoder works on the input.
fn allocated<T>(decode: impl Fn(Bytes) -> T, input: &Bytes) -> usize {
    let region = Region::new(ALLOCATOR);
    let decoded = decode(input.clone());
    let bytes = region.change().bytes_allocated;
    drop(decoded);
    bytes
}

fn message<M: Decodable>(version: i16) -> impl Fn(Bytes) -> Option<M> {
    move |mut bytes| M::decode(&mut bytes, version).ok()
}

fn batches(bytes: Bytes) {
    for batch in records::split(bytes) {
        let Ok(records) = batch.and_then(|batch| batch.records()) else { break };
        for record in &records {
            let Ok(record) = record else { break };
            assert!(record.headers.iter().count() <= records.payload().len());
        }
    }
}

/// Topics, partitions and batches that each claim all that the remaining bytes could hold.
fn greedy_acknowledgements(len: usize) -> Bytes {
    let mut buf = BytesMut::new();
    // Group, member, session epoch and renewal of a ShareAcknowledgeRequest.
    buf.put_slice(&[0, 0, 0, 0, 0, 0, 0]);
    put_unsigned_varint(&mut buf, (len / 18) as u32);
    buf.put_slice(&[1; 16]);
    put_unsigned_varint(&mut buf, (len / 6) as u32 - 10);
    buf.put_i32(1);
    put_unsigned_varint(&mut buf, (len / 18) as u32 - 10);
    buf.put_slice(&[0; 16]);
    put_unsigned_varint(&mut buf, len as u32 - 100);
    buf.resize(len, 1);
    buf.freeze()
}

/// Bytes of a dense message.
const DENSE_BYTES: usize = 8 * 1024;
/// Bytes in memory of each byte of the densest message. A structure of many fields that its version does not have
/// yet is small on the wire and not in memory.
const DENSE_FACTOR: usize = 64;
/// Bytes in memory of the largest element that has nothing in it. Times `ELEMENTS_MAX` it bounds every message.
const ELEMENT_BYTES_MAX: usize = 400;

/// Writes messages that hold as many elements as bytes can: all arrays are empty but for one, or all tagged fields.
struct Dense {
    /// The array or section of tagged fields to fill, counted as they are written.
    chosen: usize,
    met: usize,
    /// Elements of the chosen one.
    filled: usize,
    out: Vec<u8>,
}

impl Dense {
    fn of(parts: &[Part], chosen: usize) -> Option<(Bytes, usize)> {
        let mut dense = Dense { chosen, met: 0, filled: 0, out: Vec::new() };
        dense.parts(parts, true);
        (dense.met > chosen).then(|| (dense.out.into(), dense.filled))
    }

    /// `open`: this is the way to the chosen one.
    fn parts(&mut self, parts: &[Part], open: bool) {
        for part in parts {
            match part {
                Part::Fixed(bytes) => self.out.resize(self.out.len() + bytes, 0),
                Part::Text => self.out.put_i16(0),
                Part::Blob => self.out.put_i32(0),
                Part::Compact => self.out.put_u8(1),
                Part::Array(element) => {
                    let count = self.count(element, open);
                    self.out.put_i32(count as i32);
                    (0..count).for_each(|_| self.parts(element, open && count == 1));
                }
                Part::CompactArray(element) => {
                    let count = self.count(element, open);
                    put_compact(&mut self.out, count as u32 + 1);
                    (0..count).for_each(|_| self.parts(element, open && count == 1));
                }
                Part::Optional(_) => self.out.put_u8(0xff),
                Part::Tagged(_) => {
                    self.met += usize::from(open);
                    let fields = if open && self.met == self.chosen + 1 { DENSE_BYTES as u32 / 4 } else { 0 };
                    self.filled += fields as usize;
                    put_compact(&mut self.out, fields);
                    for tag in 0..fields {
                        put_compact(&mut self.out, tag + 100);
                        self.out.put_u8(0);
                    }
                }
            }
        }
    }

    /// One on the way to the chosen array, many of the chosen one, else none.
    fn count(&mut self, element: &[Part], open: bool) -> usize {
        if !open {
            return 0;
        }
        self.met += 1;
        if self.met <= self.chosen {
            return 1;
        }
        if self.met > self.chosen + 1 {
            return 0;
        }
        let mut one = Dense { chosen: usize::MAX, met: 0, filled: 0, out: Vec::new() };
        one.parts(element, false);
        self.filled = DENSE_BYTES / one.out.len();
        self.filled
    }
}

fn put_compact(out: &mut Vec<u8>, value: u32) {
    let mut varint = BytesMut::new();
    put_unsigned_varint(&mut varint, value);
    out.extend_from_slice(&varint);
}

/// The densest message so far.
#[derive(Debug, Default)]
struct Densest {
    factor: usize,
    name: String,
    /// Most bytes in memory of an element, and where.
    element_bytes: usize,
    element_name: String,
    messages: usize,
}

impl Densest {
    fn meet<M: Message + Decodable>(&mut self, version: i16, decode: impl Fn(Bytes) -> bool) {
        let shape = Shape::of::<M>(version).unwrap();
        for chosen in 0.. {
            let Some((input, elements)) = Dense::of(shape.parts(), chosen) else { break };
            let bytes = allocated(
                |input| assert!(decode(input), "{} version {version}", std::any::type_name::<M>()),
                &input,
            );
            let factor = bytes.saturating_sub(ERROR_BYTES) / input.len();
            self.messages += 1;
            let name = || format!("array {chosen} of {} version {version}", std::any::type_name::<M>());
            if factor > self.factor {
                (self.factor, self.name) = (factor, name());
            }
            let element_bytes = bytes.saturating_sub(ERROR_BYTES + input.len()) / elements.max(1);
            if element_bytes > self.element_bytes {
                (self.element_bytes, self.element_name) = (element_bytes, name());
            }
        }
    }
}

impl Visit for Densest {
    fn visit<R: Request>(&mut self) {
        for version in R::VERSIONS.min..=R::VERSIONS.max {
            self.meet::<R>(version, |body| frame::decode_request_body::<R>(body, version).is_ok());
        }
        for version in R::Response::VERSIONS.min..=R::Response::VERSIONS.max {
            let header = &[0; 5][..4 + usize::from(R::Response::header_version(version) >= 1)];
            self.meet::<R::Response>(version, |body| {
                frame::decode_response::<R>([header, &body].concat().into(), version).is_ok()
            });
        }
    }
}

/// A batch whose header claims as many records as there are offsets.
fn greedy_batch(len: usize) -> Bytes {
    let mut buf = BytesMut::zeroed(len);
    buf[8..12].copy_from_slice(&(len as i32 - 12).to_be_bytes());
    buf[16] = 2;
    buf[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
    buf[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    buf.freeze()
}

/// A batch of one LZ4 frame of the older kind, for which a decoder reserves two blocks of 8 MiB.
fn old_lz4_batch() -> Bytes {
    let section = [&0x184c_2102_u32.to_le_bytes()[..], &[4, 0, 0, 0, 0x30, 1, 2, 3]].concat();
    let mut batch = BytesMut::zeroed(61);
    batch[8..12].copy_from_slice(&(49 + section.len() as i32).to_be_bytes());
    batch[16] = 2;
    batch[22] = 3;
    batch.extend_from_slice(&section);
    batch.freeze()
}

#[test]
fn allocations_are_bounded_by_the_input() {
    let rng = Rng::seeded(7);
    let mut inputs =
        vec![greedy_acknowledgements(200_000), greedy_batch(200_000), Bytes::from(vec![0xff; 100_000])];
    inputs.push(old_lz4_batch());
    for _ in 0..2_000 {
        let len = rng.below(400) as usize;
        inputs.push((0..len).map(|_| rng.below(256) as u8).collect());
    }
    assert!(
        allocated(message::<ShareAcknowledgeRequest>(2), &inputs[0]) > inputs[0].len(),
        "greed is seen at all"
    );
    for input in inputs {
        let measured = [
            ("ShareFetchRequest", allocated(message::<ShareFetchRequest>(2), &input)),
            ("ShareFetchResponse", allocated(message::<ShareFetchResponse>(2), &input)),
            ("ShareAcknowledgeRequest", allocated(message::<ShareAcknowledgeRequest>(2), &input)),
            ("TxnShareAcknowledgeRequest", allocated(message::<TxnShareAcknowledgeRequest>(0), &input)),
            ("TxnShareAcknowledgeResponse", allocated(message::<TxnShareAcknowledgeResponse>(0), &input)),
            ("WriteShareGroupStateRequest", allocated(message::<WriteShareGroupStateRequest>(10), &input)),
            ("request header", allocated(|mut bytes| frame::decode_request_header(&mut bytes).ok(), &input)),
            ("record batches", allocated(batches, &input)),
        ];
        for (what, bytes) in measured {
            let limit = FACTOR * input.len() + ERROR_BYTES;
            assert!(bytes <= limit, "{what}: {bytes} bytes allocated for an input of {} bytes", input.len());
        }
    }
    // Last, as the shapes that are learned here are kept.
    let mut densest = Densest::default();
    every_api(&mut densest);
    println!("densest: {densest:?}");
    assert!(densest.messages > 1_000, "{densest:?}");
    assert!(densest.factor > 10, "density is seen at all: {densest:?}");
    assert!(densest.factor <= DENSE_FACTOR, "{densest:?}");
    assert!(densest.element_bytes <= ELEMENT_BYTES_MAX, "{densest:?}");
}
