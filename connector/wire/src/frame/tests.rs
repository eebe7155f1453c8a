//! Frames of known, newer and unknown APIs.

use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, MetadataRequest};
use kafka_protocol::protocol::StrBytes;
use proptest::prelude::*;

use super::*;
use crate::messages::share_acknowledge::{ShareAcknowledgeRequest, ShareAcknowledgeResponse};
use crate::txn_share_acknowledge::{TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse};

/// What a peer that reads the frame sees: the frame without its checked length prefix.
fn unframe(frame: &Bytes) -> Bytes {
    let mut buf = BytesMut::from(&frame[..]);
    let inner = FrameDecoder::default().next(&mut buf).unwrap().unwrap();
    assert!(buf.is_empty());
    inner
}

#[test]
fn header_and_body_of_a_foreign_api_are_read_back() {
    let request = TxnShareAcknowledgeRequest {
        transactional_id: Some(StrBytes::from_static_str("tx")),
        group_id: StrBytes::from_static_str("g"),
        producer_id: 7,
        ..Default::default()
    };
    let mut frame = unframe(&encode_request(&request, 0, 42, "me").unwrap());
    let header = decode_request_header(&mut frame).unwrap();
    let expected =
        RequestHeader { api_key: 95, api_version: 0, correlation_id: 42, client_id: Some("me".to_owned()) };
    assert_eq!(header, expected);
    assert_eq!(decode_request_body::<TxnShareAcknowledgeRequest>(frame, 0).unwrap(), request);

    let response = TxnShareAcknowledgeResponse { error_code: 48, ..Default::default() };
    let frame = unframe(&encode_response(&response, 0, 42).unwrap());
    assert_eq!(response_correlation_id(&frame).unwrap(), 42);
    assert_eq!(decode_response::<TxnShareAcknowledgeRequest>(frame, 0).unwrap(), (42, response));
}

#[test]
fn version_newer_than_kafka_protocol_has_a_flexible_header() {
    let request = ShareAcknowledgeRequest { is_renew_ack: true, ..Default::default() };
    let mut frame = unframe(&encode_request(&request, 2, 1, "c").unwrap());
    let header = decode_request_header(&mut frame).unwrap();
    assert_eq!((header.api_key, header.api_version), (79, 2));
    assert_eq!(decode_request_body::<ShareAcknowledgeRequest>(frame, 2).unwrap(), request);
}

#[test]
fn request_header_is_that_of_kafka_protocol() {
    for version in [4, 9, 12] {
        let frame = unframe(&encode_request(&MetadataRequest::default(), version, 5, "abc").unwrap());
        let mut theirs = frame.clone();
        let header = kafka_protocol::protocol::decode_request_header_from_buffer(&mut theirs).unwrap();
        assert_eq!((header.request_api_version, header.correlation_id), (version, 5));
        let mut ours = frame;
        decode_request_header(&mut ours).unwrap();
        assert_eq!(ours, theirs, "both must leave the buffer at the body");
    }
}

#[test]
fn api_versions_response_never_has_a_flexible_header() {
    for version in 0..=4 {
        let frame = unframe(&encode_response(&ApiVersionsResponse::default(), version, 9).unwrap());
        let (correlation_id, _) = decode_response::<ApiVersionsRequest>(frame, version).unwrap();
        assert_eq!(correlation_id, 9);
    }
}

#[test]
fn unknown_api_key_is_read_with_and_without_tagged_fields() {
    let mut frame = Bytes::from_static(&[0x30, 0x39, 0, 1, 0, 0, 0, 7, 0, 1, b'c', 0, 0xaa]);
    let header = decode_request_header(&mut frame).unwrap();
    assert_eq!((header.api_key, header.correlation_id, header.client_id.as_deref()), (12345, 7, Some("c")));
    assert_eq!(&frame[..], &[0xaa]);
    let mut frame = Bytes::from_static(&[0x30, 0x39, 0, 1, 0, 0, 0, 7, 0xff, 0xff]);
    assert_eq!(decode_request_header(&mut frame).unwrap().client_id, None);
}

#[test]
fn bytes_left_over_are_an_error() {
    let mut frame =
        BytesMut::from(&unframe(&encode_response(&ShareAcknowledgeResponse::default(), 1, 3).unwrap())[..]);
    frame.put_u8(0);
    let error = decode_response::<ShareAcknowledgeRequest>(frame.freeze(), 1).unwrap_err();
    assert_eq!(error.to_string(), "response of ShareAcknowledge (79) version 1 has 1 bytes left over");
}

#[test]
fn field_that_the_version_lacks_is_refused_unless_ignorable() {
    let request = ShareAcknowledgeRequest { is_renew_ack: true, ..Default::default() };
    let error = encode_request(&request, 1, 1, "c").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("is_renew_ack needs version 2"), "{error}");
    let response = ShareAcknowledgeResponse { acquisition_lock_timeout_ms: 30_000, ..Default::default() };
    assert!(encode_response(&response, 1, 1).is_ok());
}

#[test]
fn frames_are_split_whatever_the_chunks() {
    let frames: Vec<Bytes> =
        (0..4).map(|id| encode_request(&MetadataRequest::default(), 12, id, "chunked").unwrap()).collect();
    let stream = frames.concat();
    for chunk_bytes in [1, 3, 7, 1000] {
        let (mut buf, mut decoder, mut seen) = (BytesMut::new(), FrameDecoder::new(1000), Vec::new());
        for chunk in stream.chunks(chunk_bytes) {
            buf.extend_from_slice(chunk);
            while let Some(frame) = decoder.next(&mut buf).unwrap() {
                seen.push(frame);
            }
        }
        assert_eq!(seen.len(), frames.len());
        for (seen, sent) in seen.iter().zip(&frames) {
            assert_eq!(&seen[..], &sent[4..]);
        }
    }
}

#[test]
fn frame_length_out_of_bounds_is_an_error() {
    for length in [-1, 1001, i32::MAX, i32::MIN] {
        let mut buf = BytesMut::from(&length.to_be_bytes()[..]);
        assert!(FrameDecoder::new(1000).next(&mut buf).is_err(), "{length}");
        assert!(buf.capacity() < 100, "nothing is reserved for a refused frame");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let frame = Bytes::from(bytes);
        let _ = decode_request_header(&mut frame.clone());
        let _ = response_correlation_id(&frame);
        let _ = decode_response::<TxnShareAcknowledgeRequest>(frame.clone(), 0);
        let _ = decode_response::<ShareAcknowledgeRequest>(frame.clone(), 2);
        let _ = FrameDecoder::new(1 << 20).next(&mut BytesMut::from(&frame[..]));
    }
}
