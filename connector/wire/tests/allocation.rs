//! No bytes make a decoder allocate more than a small multiple of their own length. A binary of its own with one
//! test, because it counts all allocations of the process.

#![allow(clippy::unwrap_used, reason = "a failed unwrap in a helper of a test fails the test")]

use std::alloc::System;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::Decodable;
use sharestream_base::Rng;
use sharestream_wire::codec::put_unsigned_varint;
use sharestream_wire::frame;
use sharestream_wire::messages::share_acknowledge::ShareAcknowledgeRequest;
use sharestream_wire::messages::share_fetch::{ShareFetchRequest, ShareFetchResponse};
use sharestream_wire::messages::write_share_group_state::WriteShareGroupStateRequest;
use sharestream_wire::records;
use sharestream_wire::txn_share_acknowledge::{TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

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

/// A batch whose header claims as many records as there are offsets.
fn greedy_batch(len: usize) -> Bytes {
    let mut buf = BytesMut::zeroed(len);
    buf[8..12].copy_from_slice(&(len as i32 - 12).to_be_bytes());
    buf[16] = 2;
    buf[23..27].copy_from_slice(&(i32::MAX - 1).to_be_bytes());
    buf[57..61].copy_from_slice(&i32::MAX.to_be_bytes());
    buf.freeze()
}

#[test]
fn allocations_are_bounded_by_the_input() {
    let rng = Rng::seeded(7);
    let mut inputs =
        vec![greedy_acknowledgements(200_000), greedy_batch(200_000), Bytes::from(vec![0xff; 100_000])];
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
}
