//! Frames that come to the client: of every API and version that there is.
//!
//! The first byte is the API key and the second the version; the rest is the frame behind the correlation id.
#![no_main]

use bytes::Bytes;
use kafka_protocol::protocol::{HeaderVersion, Message, Request};
use libfuzzer_sys::fuzz_target;
use sharestream_fuzz::seeds::Seeds;
use sharestream_fuzz::{MESSAGE_FACTOR, MESSAGE_FIXED, Parts, bounded};
use sharestream_wire::frame;
use sharestream_wire::shape::Shape;

#[path = "../../connector/wire/tests/wire/every_api.rs"]
mod every_api;

use every_api::{Visit, every_api};

/// Stands for the API keys that are not bytes.
const PRIVATE: u8 = 200;

fuzz_target!(init: if let Some(seeds) = Seeds::asked_for() { every_api(&mut Samples(seeds)) }, |data: &[u8]| {
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

struct Samples(Seeds);

impl Visit for Samples {
    fn visit<R: Request>(&mut self) {
        let versions = R::Response::VERSIONS;
        for version in versions.min..=versions.max {
            let Ok(shape) = Shape::of::<R::Response>(version) else { continue };
            let body = shape.sample(|end| self.0.below(end));
            let api = u8::try_from(R::KEY).ok().filter(|api| *api < PRIVATE).unwrap_or(PRIVATE);
            let tags = &[0][..usize::from(R::Response::header_version(version) >= 1)];
            self.0.put(&[&[api, (version - versions.min) as u8], tags, &body]);
        }
    }
}
