//! Every request that we send, in every version of it, against a second implementation of the schemas, byte by byte;
//! and every answer that it writes, read and written again by ours.
//!
//! Fields are set by name on both sides, to values that differ from one another: two of them in the wrong order show.
//! The messages that are ours alone are compared in `connector/wire/tests`.

use bytes::{Bytes, BytesMut};
use kacrab_protocol::generated as k;
use kacrab_protocol::{KafkaString, KafkaUuid};
use kafka_protocol::messages as m;
use kafka_protocol::protocol::{Decodable, Encodable, Request, StrBytes};
use uuid::Uuid;

use super::OURS;

/// Key, and what both sides write in a version: the request, then the answer.
struct Witness {
    key: i16,
    request: Box<dyn Fn(i16) -> (Bytes, Bytes)>,
    response: Box<dyn Fn(i16) -> (Bytes, Bytes)>,
}

fn ours<M: Encodable>(message: &M, version: i16) -> Bytes {
    let mut buffer = BytesMut::new();
    message.encode(&mut buffer, version).unwrap();
    buffer.freeze()
}

/// What `theirs` wrote, and the same read and written by us.
fn read_and_written<M: Encodable + Decodable>(theirs: BytesMut, version: i16) -> (Bytes, Bytes) {
    let theirs = theirs.freeze();
    let mut unread = theirs.clone();
    let message = M::decode(&mut unread, version).unwrap();
    assert!(unread.is_empty(), "bytes are left over");
    (ours(&message, version), theirs)
}

macro_rules! witness {
    ($request:ty, |$version:ident| $ours:expr, $theirs:expr, $answer:expr $(,)?) => {
        Witness {
            key: <$request as Request>::KEY,
            request: Box::new(move |$version| {
                let message: $request = $ours;
                let mut theirs = BytesMut::new();
                $theirs.write(&mut theirs, $version).unwrap();
                (ours(&message, $version), theirs.freeze())
            }),
            response: Box::new(move |$version| {
                let mut theirs = BytesMut::new();
                $answer.write(&mut theirs, $version).unwrap();
                read_and_written::<<$request as Request>::Response>(theirs, $version)
            }),
        }
    };
}

const ID: Uuid = Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

fn kt(text: &'static str) -> KafkaString {
    KafkaString::from_static(text)
}

fn kid() -> KafkaUuid {
    KafkaUuid::from(ID)
}

fn topic(name: &'static str) -> m::TopicName {
    m::TopicName(text(name))
}

fn group(name: &'static str) -> m::GroupId {
    m::GroupId(text(name))
}

fn transactional(name: &'static str) -> m::TransactionalId {
    m::TransactionalId(text(name))
}

fn since<T: Default>(version: i16, first: i16, value: T) -> T {
    if version >= first { value } else { T::default() }
}

mod admin;
mod data;
mod groups;

fn witnesses() -> Vec<Witness> {
    let mut all = data::witnesses();
    all.extend(admin::witnesses());
    all.extend(groups::witnesses());
    all
}

/// Compared with a third-party codec in `connector/wire/tests`, or nobody else's at all.
const OF_OUR_OWN: [i16; 4] = [78, 79, 90, crate::versions::ApiKey::TXN_SHARE_ACKNOWLEDGE.0];

#[test]
fn every_request_has_the_bytes_of_another_implementation_in_every_version_that_we_send() {
    let witnesses = witnesses();
    let mut compared = 0;
    for (key, min, max) in OURS.iter().filter(|(key, ..)| !OF_OUR_OWN.contains(&key.0)) {
        let witness = witnesses.iter().find(|witness| witness.key == key.0);
        let witness = witness.unwrap_or_else(|| panic!("{key} has no witness"));
        for version in *min..=*max {
            let (ours, theirs) = (witness.request)(version);
            assert_eq!(ours, theirs, "{key} version {version}, request");
            let (ours, theirs) = (witness.response)(version);
            assert_eq!(ours, theirs, "{key} version {version}, answer");
            compared += 1;
        }
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn every_version_of_ours_is_agreed_on_with_a_broker_that_has_only_it() {
    for (key, min, max) in OURS {
        for version in *min..=*max {
            let agreed = super::AgreedVersions::agree([(key.0, version, version)]);
            assert_eq!(agreed.agreed.get(&key.0), Some(&version), "{key}");
        }
        let (older, newer) = ((key.0, 0, min - 1), (key.0, max + 1, max + 9));
        assert_eq!(super::AgreedVersions::agree([newer]).keys().count(), 0, "{key}");
        assert_eq!(super::AgreedVersions::agree([older]).keys().count(), 0, "{key}");
        assert_eq!(super::AgreedVersions::agree([(key.0, 0, max + 9)]).agreed.get(&key.0), Some(max));
    }
}
