//! Frames that come to the client: of every API and version that there is.
//!
//! The first byte is the API key and the second the version; the rest is the frame behind the correlation id.
#![no_main]

use bytes::Bytes;
use kafka_protocol::protocol::{Message, Request};
use libfuzzer_sys::fuzz_target;
use sharestream_fuzz::{MESSAGE_FACTOR, MESSAGE_FIXED, Parts, bounded};
use sharestream_wire::frame;

#[path = "../../connector/wire/tests/wire/every_api.rs"]
mod every_api;

use every_api::{Visit, every_api};

/// Stands for the API keys that are not bytes.
const PRIVATE: u8 = 200;

fuzz_target!(|data: &[u8]| {
    let mut parts = Parts(data);
    let (api, version) = (parts.byte(), parts.byte());
    let frame = [&[0; 4], parts.0].concat().into();
    every_api(&mut Decode { api, version, frame });
});

struct Decode {
    api: u8,
    version: u8,
    frame: Bytes,
}

impl Visit for Decode {
    fn visit<R: Request>(&mut self) {
        if R::KEY != i16::from(self.api) && !(self.api == PRIVATE && R::KEY > i16::from(PRIVATE)) {
            return;
        }
        let versions = R::Response::VERSIONS;
        let version = versions.min + i16::from(self.version) % (versions.max - versions.min + 1).max(1);
        let frame = self.frame.clone();
        let decode = || frame::decode_response::<R>(frame, version);
        drop(bounded(self.frame.len(), MESSAGE_FACTOR, MESSAGE_FIXED, decode));
    }
}
