//! Bytes that no honest peer sends, for every message in every version.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{FetchResponse, MetadataRequest};
use kafka_protocol::protocol::{Decodable, Message, Request};
use sharestream_base::Rng;
use sharestream_wire::frame;
use sharestream_wire::shape::{ELEMENTS_MAX, Part, Shape};

use crate::every_api::{Visit, every_api};

/// Samples of a message, and mutations of each.
const SAMPLES: usize = 8;
const MUTATIONS: usize = 12;

/// Does something with the shape of every message. The function decodes by the door that the message comes in by.
trait VisitMessage {
    fn message<M: Message + Decodable>(&mut self, version: i16, decode: impl Fn(Bytes) -> bool);
}

struct Messages<V>(V);

impl<V: VisitMessage> Visit for Messages<V> {
    fn visit<R: Request>(&mut self) {
        for version in R::VERSIONS.min..=R::VERSIONS.max {
            self.0.message::<R>(version, |body| frame::decode_request_body::<R>(body, version).is_ok());
        }
        for version in R::Response::VERSIONS.min..=R::Response::VERSIONS.max {
            self.0.message::<R::Response>(version, |body| {
                // A correlation id and, in a flexible version, no tagged fields: as the header of every response.
                let flexible =
                    <R::Response as kafka_protocol::protocol::HeaderVersion>::header_version(version);
                let header = &[0; 5][..4 + usize::from(flexible >= 1)];
                frame::decode_response::<R>([header, &body].concat().into(), version).is_ok()
            });
        }
    }
}

fn numbers(rng: &Rng) -> impl FnMut(usize) -> usize {
    move |below| rng.below(below as u64) as usize
}

struct SamplesAreRead {
    rng: Rng,
    seen: usize,
}

impl VisitMessage for SamplesAreRead {
    fn message<M: Message + Decodable>(&mut self, version: i16, decode: impl Fn(Bytes) -> bool) {
        let shape = Shape::of::<M>(version).unwrap();
        for _ in 0..SAMPLES {
            let sample = Bytes::from(shape.sample(numbers(&self.rng)));
            let name = std::any::type_name::<M>();
            assert_eq!(shape.check(&sample).unwrap(), sample.len(), "{name} version {version}: {shape:?}");
            assert!(decode(sample.clone()), "{name} version {version}: {sample:?} of {shape:?}");
            if !sample.is_empty() {
                let cut = sample.slice(..self.rng.below(sample.len() as u64) as usize);
                assert!(!decode(cut), "{name} version {version} lacks its end");
            }
        }
        self.seen += 1;
    }
}

#[test]
fn every_message_of_every_version_is_read_as_its_shape_says() {
    let mut messages = Messages(SamplesAreRead { rng: Rng::seeded(1), seen: 0 });
    every_api(&mut messages);
    assert!(messages.0.seen > 590, "{} messages and versions", messages.0.seen);
}

struct MutationsAreSafe(Rng);

impl VisitMessage for MutationsAreSafe {
    fn message<M: Message + Decodable>(&mut self, version: i16, decode: impl Fn(Bytes) -> bool) {
        let shape = Shape::of::<M>(version).unwrap();
        for _ in 0..SAMPLES {
            let sample = shape.sample(numbers(&self.0));
            for _ in 0..MUTATIONS {
                // What the decoder takes must be what the shape says; the door asserts it.
                decode(mutated(&sample, &self.0).into());
            }
        }
    }
}

/// The bytes with some of them changed, left out, or put in.
fn mutated(bytes: &[u8], rng: &Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(5) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, [0x7f, 0xff, 0xff, 0xff])),
            2 => drop(bytes.splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x0f])),
            3 => drop(bytes.drain(at..(at + 1 + rng.below(4) as usize).min(bytes.len()).max(at))),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = rng.below(256) as u8;
                }
            }
        }
    }
    bytes
}

#[test]
fn no_change_of_a_message_makes_its_decoder_panic_or_take_other_bytes_than_its_shape() {
    every_api(&mut Messages(MutationsAreSafe(Rng::seeded(2))));
}

#[test]
fn a_count_that_the_bytes_cannot_fill_is_refused_before_anything_is_reserved() {
    // 2,147,483,647 topics of 72 bytes in memory; 4,294,967,294 in the compact form.
    let (plain, compact) = ([0x7f, 0xff, 0xff, 0xff], [0xff, 0xff, 0xff, 0xff, 0x0f]);
    for (version, count) in [(0, &plain[..]), (9, &compact[..])] {
        let error =
            frame::decode_request_body::<MetadataRequest>(count.to_vec().into(), version).unwrap_err();
        assert!(error.to_string().contains("are claimed where 0 bytes are left"), "{error}");
    }
}

#[test]
fn a_message_of_too_many_elements_is_refused() {
    let topics = |count: usize| {
        let mut body = BytesMut::new();
        body.put_i32(count as i32);
        body.resize(4 + 2 * count, 0);
        frame::decode_request_body::<MetadataRequest>(body.freeze(), 0)
    };
    assert_eq!(topics(100_000).unwrap().topics.unwrap().len(), 100_000);
    let error = topics(ELEMENTS_MAX + 1).unwrap_err();
    assert!(error.to_string().contains("more than 2097152 elements"), "{error}");
}

#[test]
fn a_shape_has_what_the_schema_has() {
    let metadata = |version| Shape::of::<MetadataRequest>(version).unwrap().parts().to_vec();
    assert_eq!(metadata(0), [Part::Array(vec![Part::Text])]);
    assert_eq!(metadata(8), [Part::Array(vec![Part::Text]), Part::Fixed(3)]);
    let topic = vec![Part::Fixed(16), Part::Compact, Part::Tagged([].into())];
    assert_eq!(metadata(12), [Part::CompactArray(topic), Part::Fixed(2), Part::Tagged([].into())]);
    // The endpoints of KIP-951 are a tagged field.
    let fetch = Shape::of::<FetchResponse>(16).unwrap();
    let Some(Part::Tagged(known)) = fetch.parts().last() else { panic!("{fetch:?}") };
    let node = vec![Part::Fixed(4), Part::Compact, Part::Fixed(4), Part::Compact, Part::Tagged([].into())];
    assert_eq!(known[&0], [Part::CompactArray(node)]);
    // The elements of aborted transactions come before the records.
    assert!(Shape::of::<FetchResponse>(99).is_err());
}
