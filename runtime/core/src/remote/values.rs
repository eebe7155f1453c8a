//! The byte forms of what tasks and coordinator tell each other: decisions, reports, errors, moments.

use std::time::Duration;

use sharestream_base::ids::{CheckpointId, MemberEpoch, Offset, PartitionIndex, TopicId};
use sharestream_base::{ErrorKind, Instant};
use sharestream_checkpoints::{StatePart, StatePartKind};

use super::bytes::{ByteReader, ByteWriter, Malformed};
use crate::coordinates::RejectCounts;
use crate::decision::{DecidedRange, Decision, Decisions, MemberDecisions, ShareMember, SourcePartition};
use crate::element::Barrier;
use crate::error::Error;
use crate::sink::SinkReport;
use crate::source::{Delivery, InFlight, SourceCounters, SourceReport};
use crate::state::StateReport;
use crate::supervisor::describe;
use crate::task::context::OperatorReport;
use crate::watermark::{EventTimes, Watermark};

type Read<T> = Result<T, Malformed>;

pub(crate) fn checkpoint(reader: &mut ByteReader<'_>) -> Read<CheckpointId> {
    Ok(CheckpointId(reader.u64()?))
}

/// Moments do not cross: clocks of two processes have nothing to do with each other. How far away they are does.
pub(crate) fn write_ahead(writer: &mut ByteWriter, at: Instant, now: Instant) {
    let micros = u64::try_from(at.duration_since(now).as_micros()).unwrap_or(u64::MAX);
    writer.u64(micros);
}

pub(crate) fn read_ahead(reader: &mut ByteReader<'_>, now: Instant) -> Read<Instant> {
    let ahead = bounded(reader.u64()?);
    Ok(now.checked_add(ahead).unwrap_or(now))
}

pub(crate) fn write_ago(writer: &mut ByteWriter, at: Instant, now: Instant) {
    let micros = u64::try_from(now.duration_since(at).as_micros()).unwrap_or(u64::MAX);
    writer.u64(micros);
}

pub(crate) fn read_ago(reader: &mut ByteReader<'_>, now: Instant) -> Read<Instant> {
    let ago = bounded(reader.u64()?);
    Ok(now.checked_sub(ago).unwrap_or(now))
}

/// Nothing here is further away than a day; a number from outside must not overflow a clock.
fn bounded(micros: u64) -> Duration {
    Duration::from_micros(micros).min(Duration::from_secs(86_400))
}

pub(crate) fn write_barrier(writer: &mut ByteWriter, barrier: Barrier, now: Instant) {
    writer.u64(barrier.checkpoint.0).option(barrier.waits_until, |writer, at| write_ahead(writer, at, now));
    writer.option(barrier.watermark, |writer, watermark| {
        writer.i64(watermark.0);
    });
}

pub(crate) fn read_barrier(reader: &mut ByteReader<'_>, now: Instant) -> Read<Barrier> {
    let checkpoint = checkpoint(reader)?;
    let waits_until = reader.option(|reader| read_ahead(reader, now))?;
    let watermark = reader.option(|reader| Ok(Watermark(reader.i64()?)))?;
    Ok(Barrier { checkpoint, waits_until, watermark })
}

fn decision_code(decision: Decision) -> u8 {
    match decision {
        Decision::Gap => 0,
        Decision::Accept => 1,
        Decision::Reject => 3,
    }
}

/// The codes are those of acknowledgements (KIP-932).
fn read_decision(reader: &mut ByteReader<'_>) -> Read<Decision> {
    match reader.u8()? {
        0 => Ok(Decision::Gap),
        1 => Ok(Decision::Accept),
        3 => Ok(Decision::Reject),
        other => Err(Malformed::new(format!("{other} is no decision"))),
    }
}

fn write_partition(writer: &mut ByteWriter, partition: SourcePartition) {
    writer.text(&partition.topic_id.to_string()).i32(partition.partition.0);
}

fn read_partition(reader: &mut ByteReader<'_>) -> Read<SourcePartition> {
    let text = reader.text()?;
    let topic_id: TopicId = text.parse().map_err(|_| Malformed::new("a topic id is none"))?;
    Ok(SourcePartition { topic_id, partition: PartitionIndex(reader.i32()?) })
}

/// Bytes of a range: first, last, decision.
const RANGE_BYTES: usize = 17;

/// Writes decisions: partitions, each with its ranges.
pub fn write_decisions(writer: &mut ByteWriter, decisions: &Decisions) {
    writer.count(decisions.partitions().count());
    for partition in decisions.partitions() {
        write_partition(writer, partition);
        writer.count(decisions.of(partition).count());
        for DecidedRange { first, last, decision } in decisions.of(partition) {
            writer.i64(first.0).i64(last.0).u8(decision_code(decision));
        }
    }
}

/// Reads what [`write_decisions`] wrote. Errors: malformed, a range that ends before it begins included.
pub fn read_decisions(reader: &mut ByteReader<'_>) -> Result<Decisions, Malformed> {
    let mut decisions = Decisions::new();
    for _ in 0..reader.count(8)? {
        let partition = read_partition(reader)?;
        for _ in 0..reader.count(RANGE_BYTES)? {
            let (first, last) = (Offset(reader.i64()?), Offset(reader.i64()?));
            let decision = read_decision(reader)?;
            if first.0 < 0 || last < first || last.0 == i64::MAX {
                return Err(Malformed::new(format!("offsets {first} to {last} are no range")));
            }
            decisions.set(partition, DecidedRange { first, last, decision });
        }
    }
    Ok(decisions)
}

/// Writes a member of a share group.
pub fn write_member(writer: &mut ByteWriter, member: &ShareMember) {
    writer.text(&member.group_id).text(&member.member_id).i32(member.member_epoch.0);
}

/// Reads what [`write_member`] wrote.
pub fn read_member(reader: &mut ByteReader<'_>) -> Result<ShareMember, Malformed> {
    let (group_id, member_id) = (reader.text()?.to_owned(), reader.text()?.to_owned());
    Ok(ShareMember { group_id, member_id, member_epoch: MemberEpoch(reader.i32()?) })
}

/// Writes the decisions of members.
pub fn write_decided(writer: &mut ByteWriter, decided: &[MemberDecisions]) {
    writer.count(decided.len());
    for MemberDecisions { member, decisions } in decided {
        write_member(writer, member);
        write_decisions(writer, decisions);
    }
}

/// Reads what [`write_decided`] wrote.
pub fn read_decided(reader: &mut ByteReader<'_>) -> Result<Vec<MemberDecisions>, Malformed> {
    let mut decided = Vec::new();
    for _ in 0..reader.count(16)? {
        let member = read_member(reader)?;
        decided.push(MemberDecisions { member, decisions: read_decisions(reader)? });
    }
    Ok(decided)
}

pub(crate) fn write_source_report(writer: &mut ByteWriter, report: &SourceReport) {
    write_decided(writer, &report.decided);
    writer.u64(report.record_count).u64(report.byte_count).count(report.event_times.len());
    for (partition, times) in &report.event_times {
        write_partition(writer, *partition);
        writer.count(times.len());
        for (offset, time_ms) in times {
            writer.i64(offset.0).i64(*time_ms);
        }
    }
}

pub(crate) fn read_source_report(reader: &mut ByteReader<'_>) -> Read<SourceReport> {
    let decided = read_decided(reader)?;
    let (record_count, byte_count) = (reader.u64()?, reader.u64()?);
    let mut event_times = EventTimes::new();
    for _ in 0..reader.count(8)? {
        let partition = read_partition(reader)?;
        let mut times = Vec::new();
        for _ in 0..reader.count(16)? {
            times.push((Offset(reader.i64()?), reader.i64()?));
        }
        event_times.insert(partition, times);
    }
    Ok(SourceReport { decided, record_count, byte_count, event_times })
}

pub(crate) fn write_sink_report(writer: &mut ByteWriter, report: &SinkReport) {
    let RejectCounts { decode, transform, call, delivery_limit, too_large } = report.reject_counts;
    writer.u64(report.row_count).u64(report.dead_letter_count).u64(report.parked_count);
    writer.u64(decode).u64(transform).u64(call).u64(delivery_limit).u64(too_large);
    write_decisions(writer, &report.rejected);
    write_decisions(writer, &report.given_back);
}

pub(crate) fn read_sink_report(reader: &mut ByteReader<'_>) -> Read<SinkReport> {
    let (row_count, dead_letter_count, parked_count) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (decode, transform) = (reader.u64()?, reader.u64()?);
    let (call, delivery_limit, too_large) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let reject_counts = RejectCounts { decode, transform, call, delivery_limit, too_large };
    let (rejected, given_back) = (read_decisions(reader)?, read_decisions(reader)?);
    Ok(SinkReport { row_count, dead_letter_count, parked_count, reject_counts, rejected, given_back })
}

pub(crate) fn write_operator_report(writer: &mut ByteWriter, report: &OperatorReport) {
    writer.u64(report.filtered_count);
    write_decisions(writer, &report.deferred);
    writer.option(report.state.as_ref(), |writer, state| {
        writer.text(&state.operator).u32(state.state_version).u32(state.key_groups);
        writer.u64(state.delta_bytes).u64(state.base_bytes).u64(state.state_bytes);
        writer.count(state.parts.len());
        for part in &state.parts {
            write_part(writer, part);
        }
    });
}

pub(crate) fn read_operator_report(reader: &mut ByteReader<'_>) -> Read<OperatorReport> {
    let filtered_count = reader.u64()?;
    let deferred = read_decisions(reader)?;
    let state = reader.option(|reader| {
        let operator = reader.text()?.to_owned();
        let (state_version, key_groups) = (reader.u32()?, reader.u32()?);
        let (delta_bytes, base_bytes, state_bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let mut parts = Vec::new();
        for _ in 0..reader.count(41)? {
            parts.push(read_part(reader)?);
        }
        let report =
            StateReport { operator, state_version, key_groups, parts, delta_bytes, base_bytes, state_bytes };
        Ok(report)
    })?;
    Ok(OperatorReport { filtered_count, deferred, state })
}

fn write_part(writer: &mut ByteWriter, part: &StatePart) {
    let kind = match part.kind {
        StatePartKind::Base => 0,
        StatePartKind::Delta => 1,
    };
    writer.text(&part.name).text(&part.sha256).u64(part.bytes).u64(part.rows).u8(kind);
    writer.u64(part.checkpoint.0).u32(part.first_group).u32(part.last_group);
}

fn read_part(reader: &mut ByteReader<'_>) -> Read<StatePart> {
    let (name, sha256) = (reader.text()?.to_owned(), reader.text()?.to_owned());
    let (bytes, rows) = (reader.u64()?, reader.u64()?);
    let kind = match reader.u8()? {
        0 => StatePartKind::Base,
        1 => StatePartKind::Delta,
        other => return Err(Malformed::new(format!("{other} is no kind of state"))),
    };
    let checkpoint = checkpoint(reader)?;
    let (first_group, last_group) = (reader.u32()?, reader.u32()?);
    Ok(StatePart { name, sha256, bytes, rows, kind, checkpoint, first_group, last_group })
}

fn kind_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Retry => 1,
        ErrorKind::Abort => 2,
        ErrorKind::Fenced => 3,
        ErrorKind::Indeterminate => 4,
        ErrorKind::InvalidInput => 5,
        ErrorKind::Corrupt => 6,
        ErrorKind::Closed => 7,
        ErrorKind::Bug => 8,
        // A kind that this file does not know of asks for a human, as the supervisor has it.
        _ => 8,
    }
}

pub(crate) fn write_error(writer: &mut ByteWriter, error: &Error) {
    writer.u8(kind_code(error.kind())).text(&describe(error));
}

pub(crate) fn read_error(reader: &mut ByteReader<'_>) -> Read<Error> {
    let kind = match reader.u8()? {
        1 => ErrorKind::Retry,
        2 => ErrorKind::Abort,
        3 => ErrorKind::Fenced,
        4 => ErrorKind::Indeterminate,
        5 => ErrorKind::InvalidInput,
        6 => ErrorKind::Corrupt,
        7 => ErrorKind::Closed,
        8 => ErrorKind::Bug,
        other => return Err(Malformed::new(format!("{other} is no kind of error"))),
    };
    Ok(Error::new(kind, reader.text()?))
}

pub(crate) fn write_in_flight(writer: &mut ByteWriter, load: &InFlight) {
    writer.u64(load.record_count).u64(load.byte_count).u64(load.window_fill.to_bits());
    writer.u64(load.already_decided).u64(load.below_floor);
    let SourceCounters { renewals, releases, redeliveries, lost_locks } = load.counters;
    writer.u64(renewals).u64(releases).u64(redeliveries).u64(lost_locks);
    writer.option(load.nearest_limit, |writer, delivery| {
        write_partition(writer, delivery.partition);
        writer.i64(delivery.offset.0).u16(delivery.count).u16(delivery.limit);
    });
    writer.bool(load.wants_barrier);
}

pub(crate) fn read_in_flight(reader: &mut ByteReader<'_>) -> Read<InFlight> {
    let (record_count, byte_count) = (reader.u64()?, reader.u64()?);
    let window_fill = read_fill(reader)?;
    let (already_decided, below_floor) = (reader.u64()?, reader.u64()?);
    let (renewals, releases) = (reader.u64()?, reader.u64()?);
    let counters =
        SourceCounters { renewals, releases, redeliveries: reader.u64()?, lost_locks: reader.u64()? };
    let nearest_limit = reader.option(|reader| {
        let partition = read_partition(reader)?;
        let offset = Offset(reader.i64()?);
        Ok(Delivery { partition, offset, count: reader.u16()?, limit: reader.u16()? })
    })?;
    let wants_barrier = reader.bool()?;
    Ok(InFlight {
        record_count,
        byte_count,
        window_fill,
        already_decided,
        below_floor,
        counters,
        nearest_limit,
        wants_barrier,
    })
}

/// A part of a window. Errors: not a number from 0 on.
pub(crate) fn read_fill(reader: &mut ByteReader<'_>) -> Read<f64> {
    let fill = f64::from_bits(reader.u64()?);
    if fill.is_finite() && fill >= 0.0 {
        return Ok(fill);
    }
    Err(Malformed::new("a part of a lock window is no part"))
}
