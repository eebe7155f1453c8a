//! The byte forms of what crosses between the processes of a job, version 1: a version, a kind, the content.

use sharestream_base::ids::{CheckpointId, MemberEpoch, ProducerEpoch, ProducerId};
use sharestream_client::{ProducerIdentity, ShareGroupMetadata};
use sharestream_core::commit::AckMode;
use sharestream_core::decision::{Decisions, MemberDecisions, ShareMember};
use sharestream_core::remote::{
    ByteReader, ByteWriter, Malformed, read_decided, read_decisions, read_member, write_decided,
    write_decisions, write_member,
};

/// Version of the messages; another one is refused.
const VERSION: u8 = 1;

/// Something that another process has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// To the sinks: the transaction of an epoch is open, under this identity.
    Opened(CheckpointId, ProducerIdentity),
    /// To the sinks: it is over.
    Closed(CheckpointId),
    /// To the sources: what is this member's epoch now?
    AskMember { number: u64, member_id: String },
    /// From the sources: so it is; `None`, its consumer is gone.
    Member { number: u64, member: Option<ShareGroupMetadata> },
    /// To the sources: the epoch has committed, this may be acknowledged.
    Committed(CheckpointId, Vec<MemberDecisions>),
    /// From the sources: it is.
    Acknowledged(CheckpointId),
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = ByteWriter::new();
        writer.u8(VERSION);
        match self {
            Message::Opened(checkpoint, identity) => {
                writer.u8(1).u64(checkpoint.0).text(&identity.transactional_id);
                writer.i64(identity.producer_id.0).u16(identity.producer_epoch.0.cast_unsigned());
            }
            Message::Closed(checkpoint) => {
                writer.u8(2).u64(checkpoint.0);
            }
            Message::AskMember { number, member_id } => {
                writer.u8(3).u64(*number).text(member_id);
            }
            Message::Member { number, member } => {
                writer.u8(4).u64(*number).option(member.as_ref(), |writer, member| {
                    write_member(writer, &share_member(member));
                });
            }
            Message::Committed(checkpoint, decided) => {
                write_decided(writer.u8(5).u64(checkpoint.0), decided);
            }
            Message::Acknowledged(checkpoint) => {
                writer.u8(6).u64(checkpoint.0);
            }
        }
        writer.into_bytes()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = ByteReader::new(bytes);
        check_version(&mut reader)?;
        let message = match reader.u8()? {
            1 => {
                let checkpoint = CheckpointId(reader.u64()?);
                let transactional_id = reader.text()?.into();
                let producer_id = ProducerId(reader.i64()?);
                let producer_epoch = ProducerEpoch(reader.u16()?.cast_signed());
                let identity = ProducerIdentity { transactional_id, producer_id, producer_epoch };
                Message::Opened(checkpoint, identity)
            }
            2 => Message::Closed(CheckpointId(reader.u64()?)),
            3 => Message::AskMember { number: reader.u64()?, member_id: reader.text()?.to_owned() },
            4 => {
                let number = reader.u64()?;
                let member = reader.option(|reader| Ok(metadata(read_member(reader)?)))?;
                Message::Member { number, member }
            }
            5 => {
                let checkpoint = CheckpointId(reader.u64()?);
                Message::Committed(checkpoint, read_decided(&mut reader)?)
            }
            6 => Message::Acknowledged(CheckpointId(reader.u64()?)),
            other => return Err(Malformed::new(format!("{other} is no kind of kafka message"))),
        };
        reader.end()?;
        Ok(message)
    }
}

fn check_version(reader: &mut ByteReader<'_>) -> Result<(), Malformed> {
    match reader.u8()? {
        VERSION => Ok(()),
        other => Err(Malformed::new(format!("kafka messages of version {other}, not {VERSION}"))),
    }
}

fn share_member(member: &ShareGroupMetadata) -> ShareMember {
    let ShareGroupMetadata { group_id, member_id, member_epoch } = member.clone();
    ShareMember { group_id, member_id, member_epoch }
}

fn metadata(member: ShareMember) -> ShareGroupMetadata {
    let ShareMember { group_id, member_id, member_epoch } = member;
    ShareGroupMetadata { group_id, member_id, member_epoch: MemberEpoch(member_epoch.0) }
}

/// What a worker must know before it connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) mode: AckMode,
    /// The replica has run before.
    pub(super) is_restarted: bool,
    /// Sources look into the ledger.
    pub(super) reads_ledger: bool,
    /// What is decided although the group hands it out: the group was taken back to a savepoint (ADR 0023).
    pub(super) decided: Decisions,
}

impl Opening {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mode = match self.mode {
            AckMode::Transactional => 1,
            AckMode::Ledger => 2,
            AckMode::AtLeastOnce => 3,
        };
        let mut writer = ByteWriter::new();
        writer.u8(VERSION).u8(mode).bool(self.is_restarted).bool(self.reads_ledger);
        write_decisions(&mut writer, &self.decided);
        writer.into_bytes()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = ByteReader::new(bytes);
        check_version(&mut reader)?;
        let mode = match reader.u8()? {
            1 => AckMode::Transactional,
            2 => AckMode::Ledger,
            3 => AckMode::AtLeastOnce,
            other => return Err(Malformed::new(format!("{other} is no mode"))),
        };
        let (is_restarted, reads_ledger) = (reader.bool()?, reader.bool()?);
        let decided = read_decisions(&mut reader)?;
        reader.end()?;
        Ok(Opening { mode, is_restarted, reads_ledger, decided })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
    use sharestream_core::decision::{DecidedRange, Decision, SourcePartition};

    use super::*;

    /// One message of each kind, and an opening.
    fn all() -> Vec<Message> {
        let identity = ProducerIdentity {
            transactional_id: "job/0/1".into(),
            producer_id: ProducerId(4_711),
            producer_epoch: ProducerEpoch(3),
        };
        let member = ShareGroupMetadata {
            group_id: "g".to_owned(),
            member_id: "m".to_owned(),
            member_epoch: MemberEpoch(5),
        };
        let decided = vec![MemberDecisions { member: share_member(&member), decisions: decisions() }];
        vec![
            Message::Opened(CheckpointId(7), identity),
            Message::Closed(CheckpointId(7)),
            Message::AskMember { number: 9, member_id: "m".to_owned() },
            Message::Member { number: 9, member: Some(member) },
            Message::Member { number: 10, member: None },
            Message::Committed(CheckpointId(7), decided),
            Message::Acknowledged(CheckpointId(7)),
        ]
    }

    fn decisions() -> Decisions {
        let mut decisions = Decisions::new();
        let partition = SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(2) };
        for (first, decision) in [(0, Decision::Accept), (10, Decision::Reject), (20, Decision::Gap)] {
            decisions
                .set(partition, DecidedRange { first: Offset(first), last: Offset(first + 4), decision });
        }
        decisions
    }

    fn opening() -> Opening {
        Opening { mode: AckMode::Ledger, is_restarted: true, reads_ledger: true, decided: decisions() }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What version 1 wrote is read for as long as version 1 is spoken.
    #[test]
    fn the_bytes_of_version_1_do_not_change() {
        let stored = include_str!("../../tests/fixtures/attempt_messages_v1.txt");
        let written: Vec<String> =
            all().iter().map(Message::encode).chain([opening().encode()]).map(|b| hex(&b)).collect();
        if std::env::var_os("SHARESTREAM_WRITE_FIXTURES").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/attempt_messages_v1.txt");
            std::fs::write(path, written.join("\n") + "\n").unwrap();
        }
        assert_eq!(stored.lines().collect::<Vec<_>>(), written);
    }

    #[test]
    fn messages_read_back_and_no_part_of_one_does() {
        for message in all() {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Ok(message));
            for cut in 0..bytes.len() {
                assert!(Message::decode(&bytes[..cut]).is_err(), "{cut}");
            }
            assert!(Message::decode(&[&bytes[..], &[0]].concat()).is_err(), "something is left over");
            assert!(Message::decode(&[&[2], &bytes[1..]].concat()).is_err(), "another version");
        }
        for mode in [AckMode::Transactional, AckMode::Ledger, AckMode::AtLeastOnce] {
            let opening = Opening { mode, ..opening() };
            assert_eq!(Opening::decode(&opening.encode()), Ok(opening));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0u8..8) {
            let _message_or_error = Message::decode(&bytes);
            let _opening_or_error = Opening::decode(&bytes);
            if let Ok(message) = Message::decode(&[&[VERSION, kind], &bytes[..]].concat()) {
                prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
            }
        }
    }
}
