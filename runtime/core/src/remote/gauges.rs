//! The load of a worker's tasks, as the coordinator's controller needs it: a copy of [`Gauges`] as bytes.

use sharestream_base::Instant;
use sharestream_base::ids::PartitionIndex;

use super::bytes::{ByteReader, ByteWriter, Malformed};
use super::values::{read_ago, read_fill, read_in_flight, write_ago, write_in_flight};
use crate::source::{PartitionLoad, SourceMetrics};
use crate::task::gauges::{CallGauge, OldestCall, SourceGauge};

/// A copy of the gauges of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct GaugesShown {
    pub(crate) sources: Vec<SourceGauge>,
    pub(crate) calls: Vec<CallGauge>,
    /// By source subtask; `None`: not asked for this time.
    pub(crate) metrics: Option<Vec<SourceMetrics>>,
}

pub(crate) fn write_gauges(writer: &mut ByteWriter, shown: &GaugesShown, now: Instant) {
    writer.count(shown.sources.len());
    for gauge in &shown.sources {
        write_in_flight(writer, &gauge.in_flight);
        writer.bool(gauge.is_idle).option(gauge.oldest_at, |writer, at| write_ago(writer, at, now));
    }
    writer.count(shown.calls.len());
    for gauge in &shown.calls {
        writer.u64(gauge.running_count as u64).u64(gauge.waiting_count as u64).u64(gauge.retry_count);
        writer.u64(gauge.deferred_count).bool(gauge.is_holding).bool(gauge.is_saturated);
        let oldest = gauge.oldest.as_ref().and_then(|(row, since)| Some((row.place()?, *since)));
        writer.option(oldest, |writer, ((topic, partition, offset), since)| {
            writer.text(&topic).i32(partition).i64(offset);
            write_ago(writer, since, now);
        });
        writer.u64(gauge.done_count).option(gauge.done_at, |writer, at| write_ago(writer, at, now));
    }
    writer.option(shown.metrics.as_ref(), |writer, metrics| {
        writer.count(metrics.len());
        for of_source in metrics {
            writer.u64(of_source.given_up).count(of_source.partitions.len());
            for load in &of_source.partitions {
                writer.text(&load.topic).i32(load.partition.0).u64(load.in_flight);
                writer.u64(load.window_fill.to_bits());
            }
        }
    });
}

pub(crate) fn read_gauges(reader: &mut ByteReader<'_>, now: Instant) -> Result<GaugesShown, Malformed> {
    let mut sources = Vec::new();
    for _ in 0..reader.count(76)? {
        let in_flight = read_in_flight(reader)?;
        let is_idle = reader.bool()?;
        let oldest_at = reader.option(|reader| read_ago(reader, now))?;
        sources.push(SourceGauge { in_flight, is_idle, oldest_at });
    }
    let mut calls = Vec::new();
    for _ in 0..reader.count(44)? {
        calls.push(read_call(reader, now)?);
    }
    let metrics = reader.option(|reader| {
        let mut metrics = Vec::new();
        for _ in 0..reader.count(12)? {
            let mut of_source = SourceMetrics { given_up: reader.u64()?, partitions: Vec::new() };
            for _ in 0..reader.count(24)? {
                let mut load = PartitionLoad::new(reader.text()?.into(), PartitionIndex(reader.i32()?));
                (load.in_flight, load.window_fill) = (reader.u64()?, read_fill(reader)?);
                of_source.partitions.push(load);
            }
            metrics.push(of_source);
        }
        Ok(metrics)
    })?;
    Ok(GaugesShown { sources, calls, metrics })
}

fn read_call(reader: &mut ByteReader<'_>, now: Instant) -> Result<CallGauge, Malformed> {
    let (running, waiting) = (reader.u64()?, reader.u64()?);
    let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX / 1_024).min(usize::MAX / 1_024);
    let (retry_count, deferred_count) = (reader.u64()?, reader.u64()?);
    let (is_holding, is_saturated) = (reader.bool()?, reader.bool()?);
    let oldest = reader.option(|reader| {
        let topic = reader.text()?.to_owned();
        let (partition, offset) = (reader.i32()?, reader.i64()?);
        Ok((OldestCall::Elsewhere(topic, partition, offset), read_ago(reader, now)?))
    })?;
    let done_count = reader.u64()?;
    let done_at = reader.option(|reader| read_ago(reader, now))?;
    let (running_count, waiting_count) = (size(running), size(waiting));
    Ok(CallGauge {
        running_count,
        waiting_count,
        retry_count,
        deferred_count,
        is_holding,
        is_saturated,
        oldest,
        done_count,
        done_at,
    })
}
