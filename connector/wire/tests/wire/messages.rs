//! Messages of ours: they read what they write, and no bytes make them panic or allocate without bound.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::prelude::*;
use sharestream_wire::messages::initialize_share_group_state::{
    InitializeShareGroupStateRequest, InitializeShareGroupStateResponse,
};
use sharestream_wire::messages::read_share_group_state::{
    ReadShareGroupStateRequest, ReadShareGroupStateResponse,
};
use sharestream_wire::messages::share_acknowledge::{ShareAcknowledgeRequest, ShareAcknowledgeResponse};
use sharestream_wire::messages::share_fetch::{AcquiredRecords, ShareFetchableTopicResponse};
use sharestream_wire::messages::share_fetch::{PartitionData, ShareFetchRequest, ShareFetchResponse};
use sharestream_wire::messages::share_txn_outcome::{ShareTxnOutcomeRequest, ShareTxnOutcomeResponse};
use sharestream_wire::messages::write_share_group_state::{
    WriteShareGroupStateRequest, WriteShareGroupStateResponse,
};
use sharestream_wire::txn_share_acknowledge::{TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse};

use crate::fixtures;

fn encoded<M: Encodable>(message: &M, version: i16) -> Bytes {
    let mut buf = BytesMut::new();
    message.encode(&mut buf, version).unwrap();
    assert_eq!(buf.len(), message.compute_size(version).unwrap(), "the computed size is the size");
    buf.freeze()
}

fn reads_what_it_writes<M: Encodable + Decodable + PartialEq + std::fmt::Debug>(message: &M, version: i16) {
    let mut bytes = encoded(message, version);
    assert_eq!(&M::decode(&mut bytes, version).unwrap(), message);
    assert!(!bytes.has_remaining());
}

/// Every prefix of a message is a message cut short: an error, never a panic.
fn prefixes_are_errors<M: Encodable + Decodable>(message: &M, version: i16) {
    let bytes = encoded(message, version);
    for end in 0..bytes.len() {
        assert!(M::decode(&mut bytes.slice(..end), version).is_err(), "{end} of {} bytes", bytes.len());
    }
}

fn decode_all_apis(bytes: &Bytes) {
    for version in [1, 2] {
        let _ = ShareFetchRequest::decode(&mut bytes.clone(), version);
        let _ = ShareFetchResponse::decode(&mut bytes.clone(), version);
        let _ = ShareAcknowledgeRequest::decode(&mut bytes.clone(), version);
        let _ = ShareAcknowledgeResponse::decode(&mut bytes.clone(), version);
    }
    let _ = TxnShareAcknowledgeRequest::decode(&mut bytes.clone(), 0);
    let _ = TxnShareAcknowledgeResponse::decode(&mut bytes.clone(), 0);
    let _ = ShareTxnOutcomeRequest::decode(&mut bytes.clone(), 0);
    let _ = ShareTxnOutcomeResponse::decode(&mut bytes.clone(), 0);
    let _ = InitializeShareGroupStateRequest::decode(&mut bytes.clone(), 10);
    let _ = InitializeShareGroupStateResponse::decode(&mut bytes.clone(), 10);
    let _ = ReadShareGroupStateRequest::decode(&mut bytes.clone(), 10);
    let _ = ReadShareGroupStateResponse::decode(&mut bytes.clone(), 10);
    let _ = WriteShareGroupStateRequest::decode(&mut bytes.clone(), 10);
    let _ = WriteShareGroupStateResponse::decode(&mut bytes.clone(), 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn share_fetch_reads_what_it_writes(
        v1 in fixtures::share_fetch_request(1),
        v2 in fixtures::share_fetch_request(2),
        response in fixtures::share_fetch_response(),
    ) {
        reads_what_it_writes(&v1, 1);
        reads_what_it_writes(&v2, 2);
        reads_what_it_writes(&response, 1);
        reads_what_it_writes(&response, 2);
        prefixes_are_errors(&v2, 2);
        prefixes_are_errors(&response, 2);
    }

    #[test]
    fn share_acknowledge_reads_what_it_writes(
        v1 in fixtures::share_acknowledge_request(1),
        v2 in fixtures::share_acknowledge_request(2),
        response_v1 in fixtures::share_acknowledge_response(1),
        response_v2 in fixtures::share_acknowledge_response(2),
    ) {
        reads_what_it_writes(&v1, 1);
        reads_what_it_writes(&v2, 2);
        reads_what_it_writes(&response_v1, 1);
        reads_what_it_writes(&response_v2, 2);
        prefixes_are_errors(&v2, 2);
        prefixes_are_errors(&response_v2, 2);
    }

    #[test]
    fn transactional_messages_read_what_they_write(
        request in fixtures::txn_share_acknowledge_request(),
        response in fixtures::txn_share_acknowledge_response(),
        state in fixtures::write_share_group_state_request(),
    ) {
        reads_what_it_writes(&request, 0);
        reads_what_it_writes(&response, 0);
        reads_what_it_writes(&state, 10);
        prefixes_are_errors(&request, 0);
        prefixes_are_errors(&state, 10);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        decode_all_apis(&Bytes::from(bytes));
    }

    #[test]
    fn damaged_messages_never_panic(
        response in fixtures::share_fetch_response(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = encoded(&response, 2).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        decode_all_apis(&Bytes::from(bytes));
    }
}

#[test]
fn records_are_a_slice_of_the_frame() {
    let response = ShareFetchResponse {
        responses: vec![ShareFetchableTopicResponse {
            partitions: vec![PartitionData {
                records: Some(Bytes::from(vec![7; 1000])),
                acquired_records: vec![AcquiredRecords {
                    first_offset: 1,
                    last_offset: 2,
                    delivery_count: 1,
                }],
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let frame = encoded(&response, 2);
    let decoded = ShareFetchResponse::decode(&mut frame.clone(), 2).unwrap();
    let records = decoded.responses[0].partitions[0].records.clone().unwrap();
    assert!(frame.as_ptr_range().contains(&records.as_ptr()), "no copy");
}

#[test]
fn versions_out_of_range_are_errors() {
    for version in [-1, 0, 3] {
        let error = ShareFetchRequest::default().encode(&mut BytesMut::new(), version).unwrap_err();
        assert_eq!(error.to_string(), format!("ShareFetchRequest has versions 1 to 2, not {version}"));
        assert!(ShareFetchResponse::decode(&mut Bytes::new(), version).is_err());
    }
    assert!(TxnShareAcknowledgeRequest::default().compute_size(1).is_err());
    assert!(WriteShareGroupStateRequest::default().compute_size(0).is_err());
}
