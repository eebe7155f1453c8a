//! Frames that come to the broker: header and body, of every API and version that it serves.
//!
//! The first byte chooses the API and the second its version; the rest is the body. API 255 takes the rest as a frame.
#![no_main]

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::Request;
use libfuzzer_sys::fuzz_target;
use sharestream_fuzz::seeds::Seeds;
use sharestream_fuzz::{MESSAGE_FACTOR, MESSAGE_FIXED, Parts, bounded};
use sharestream_wire::frame;
use sharestream_wire::shape::Shape;

#[path = "../../connector/wire/tests/wire/every_api.rs"]
mod every_api;

use every_api::{Visit, every_api};

const RAW: u8 = 255;

fuzz_target!(init: if let Some(seeds) = Seeds::asked_for() { every_api(&mut Samples(seeds)) }, |data: &[u8]| {
    let mut parts = Parts(data);
    let (api, version) = (parts.byte(), parts.byte());
    let mut frame = if api == RAW { Bytes::copy_from_slice(parts.0) } else { framed(api, version, parts.0) };
    let header = bounded(frame.len(), 2, 4096, || frame::decode_request_header(&mut frame));
    let Ok(header) = header else { return };
    every_api(&mut Decode { key: header.api_key, version: header.api_version, body: frame });
});

fn framed(api: u8, version: u8, body: &[u8]) -> Bytes {
    let served: Vec<_> = sharestream_broker::fuzzing::served().collect();
    let (key, min, max) = served[usize::from(api) % served.len()];
    let version = min + i16::from(version) % (max - min + 1);
    let mut frame = BytesMut::new();
    frame.put_i16(key);
    frame.put_i16(version);
    frame.put_i32(7);
    // No client id; in a flexible version, no tagged fields.
    frame.put_i16(-1);
    let flexible =
        kafka_protocol::messages::ApiKey::try_from(key).map(|key| key.request_header_version(version));
    if flexible.is_ok_and(|header| header >= 2) {
        frame.put_u8(0);
    }
    frame.put_slice(body);
    frame.freeze()
}

struct Decode {
    key: i16,
    version: i16,
    body: Bytes,
}

impl Visit for Decode {
    fn visit<R: Request>(&mut self) {
        if R::KEY != self.key {
            return;
        }
        let body = self.body.clone();
        let decode = || frame::decode_request_body::<R>(body, self.version);
        drop(bounded(self.body.len(), MESSAGE_FACTOR, MESSAGE_FIXED, decode));
    }
}

struct Samples(Seeds);

impl Visit for Samples {
    fn visit<R: Request>(&mut self) {
        let Some((api, (_, min, max))) =
            sharestream_broker::fuzzing::served().enumerate().find(|(_, (key, ..))| *key == R::KEY)
        else {
            return;
        };
        for version in min..=max {
            // Another type of this API may have the version.
            let Ok(shape) = Shape::of::<R>(version) else { continue };
            let body = shape.sample(|end| self.0.below(end));
            self.0.put(&[&[api as u8, (version - min) as u8], &body]);
        }
    }
}
