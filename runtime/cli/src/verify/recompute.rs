//! What every input record must have become: decoded and transformed again, without share group, sink or
//! transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, BinaryViewArray, RecordBatch};
use arrow_cast::cast;
use arrow_schema::DataType;
use sharestream_base::ids::{Offset, TopicId};
use sharestream_client::TopicInfo;
use sharestream_core::coordinates::{self, Coordinates, ParkedCopy, RejectKind};
use sharestream_core::decision::SourcePartition;
use sharestream_core::operator::{Operator, OperatorFactory};
use sharestream_kafka::BadRecords;
use sharestream_kafka::formats::{RowEncoder, SchemaRegistry, UnwritableRow};
use sharestream_kafka::parking;
use sharestream_kafka::source::{RecordBytes, RecordCoordinates, RowsBuilder, TopicNames};
use sharestream_wire::records::{BatchHeader, Records};

use super::facts::{Expected, digest};
use crate::job_file::JobFile;
use crate::settings;
use crate::transform;

/// Rows evaluated at once.
const ROWS_MAX: usize = 8_192;

/// Decoder, transform and encoder of a job, one after the other.
pub(crate) struct Recompute {
    rows: RowsBuilder,
    topics: BTreeMap<TopicId, i16>,
    /// The topic of parked records, and its name.
    parking: Option<(TopicId, Arc<str>)>,
    operator: Option<Box<dyn Operator>>,
    /// `None`: what the rows become is up to services that are called, so they are only counted.
    encoder: Option<RowEncoder>,
    key: Option<String>,
    /// What a record that does not decode must have become.
    on_decode: Expected,
    /// And one that the transform rejects.
    on_transform: Expected,
    /// And one whose batch nobody can hold decompressed.
    on_too_large: Expected,
}

impl Recompute {
    /// The same decoder, SQL and encoder that the job has.
    pub(crate) fn new(job: &JobFile, sources: &[Arc<TopicInfo>]) -> anyhow::Result<Self> {
        let names = TopicNames::new(sources.iter().map(|topic| (&*topic.name, topic.topic_id)));
        let topics = sources.iter().filter_map(|topic| Some((topic.topic_id, names.number(topic.topic_id)?)));
        let topics = topics.collect();
        let plan = transform::plan(job)?;
        let operator = plan.transform.map(|transform| transform.create(0)).transpose()?;
        let encoder = if job.http.is_empty() {
            Some(RowEncoder::new(&job.sink.format, &plan.output).map_err(anyhow::Error::msg)?)
        } else {
            None
        };
        let rows = RowsBuilder::new(&job.source.format, names);
        let config = settings::kafka_config(job, &[], None);
        // What is given back fails each time, until its deliveries run out.
        let in_the_end = |kind| match config.policy(kind) {
            BadRecords::Release => config.policy(RejectKind::DeliveryLimit),
            policy => policy,
        };
        let of = |kind| match in_the_end(kind) {
            BadRecords::DeadLetter => Expected::Rejected,
            BadRecords::Reject | BadRecords::Fail | BadRecords::Release => Expected::RejectedUnkept,
        };
        let (on_decode, on_transform) = (of(RejectKind::Decode), of(RejectKind::Transform));
        let on_too_large = of(RejectKind::TooLarge);
        let key = job.sink.key.clone();
        let is_parking =
            |topic: &&Arc<TopicInfo>| Some(&*topic.name) == job.parking_topic().map(String::as_str);
        let parking = sources.iter().find(is_parking).map(|topic| (topic.topic_id, topic.name.clone()));
        Ok(Recompute { rows, topics, parking, operator, encoder, key, on_decode, on_transform, on_too_large })
    }

    /// Asks for the schemas that these records name and that are not known yet.
    pub(crate) async fn learn_schemas(
        &mut self,
        records: &Records,
        registry: &dyn SchemaRegistry,
    ) -> anyhow::Result<()> {
        for record in records {
            if let Some(id) = self.rows.unknown_schema(record?.value) {
                let schema = registry.schema(id).await?;
                self.rows.learn_schema(id, &schema);
            }
        }
        Ok(())
    }

    /// Takes the next committed batch of a source partition, of which no job reads a record: each of its offsets is too large.
    pub(crate) fn withheld(
        &self,
        initial: Offset,
        header: &BatchHeader,
        expected: &mut Vec<Expected>,
    ) -> anyhow::Result<()> {
        let index = |offset: i64| usize::try_from((offset - initial.0).max(0));
        let first = index(header.base_offset)?;
        expected.resize(first.max(expected.len()), Expected::NoRecord);
        let past_end = index(header.last_offset().saturating_add(1))?;
        expected.resize(past_end.max(expected.len()), self.on_too_large);
        Ok(())
    }

    /// Takes the records of the next committed batch of a source partition.
    pub(crate) fn batch(
        &mut self,
        source: SourcePartition,
        initial: Offset,
        records: &Records,
        expected: &mut Vec<Expected>,
    ) -> anyhow::Result<()> {
        let topic = *self.topics.get(&source.topic_id).context("a source topic without a number")?;
        self.rows.add_block(records.payload());
        for record in records {
            let record = record?;
            if record.offset < initial.0 {
                continue;
            }
            // Offsets in between have no record: they stay as they are made.
            let index = usize::try_from(record.offset - initial.0)?;
            expected.resize(index.max(expected.len()), Expected::NoRecord);
            let coordinates = RecordCoordinates {
                partition: source.partition,
                offset: Offset(record.offset),
                timestamp_ms: record.timestamp,
                delivery_count: 1,
            };
            let own = (!record.headers.is_empty()).then(|| record.headers.raw());
            let parked = self.parking.as_ref().filter(|(id, _)| *id == source.topic_id);
            let parked = parked.and_then(|(_, name)| Some((name.clone(), parking::read(&record.headers)?)));
            let (topic, coordinates, headers) = match &parked {
                None => (topic, coordinates, own),
                Some((name, parked)) => {
                    let first = &parked.source;
                    let copy = ParkedCopy {
                        topic: name.clone(),
                        partition: source,
                        offset: Offset(record.offset),
                        times: parked.times,
                        first_at_ms: parked.first_at_ms,
                    };
                    self.rows.next_is_copy(&copy);
                    let number = self.rows.topic_number_or_add(parked.topic, first.topic_id);
                    let as_it_was = RecordCoordinates {
                        partition: first.partition,
                        offset: first.offset,
                        timestamp_ms: parked.timestamp_ms,
                        delivery_count: 1,
                    };
                    (
                        number.context("parked records of too many topics")?,
                        as_it_was,
                        parked.headers.as_deref(),
                    )
                }
            };
            let bytes = RecordBytes { key: record.key, value: record.value, headers };
            expected.push(match self.rows.push(topic, &coordinates, &bytes) {
                Ok(()) => Expected::Rows { count: 0, digest: self.encoder.as_ref().map(|_| 0) },
                Err(_) => self.on_decode,
            });
        }
        // The builder keeps blocks until it is finished, so it is emptied with the batch.
        if self.rows.row_count() >= ROWS_MAX {
            self.finish(source, initial, expected)?;
        }
        Ok(())
    }

    /// Evaluates what has gathered.
    pub(crate) fn finish(
        &mut self,
        source: SourcePartition,
        initial: Offset,
        expected: &mut [Expected],
    ) -> anyhow::Result<()> {
        let Some(decoded) = self.rows.finish()?.rows else { return Ok(()) };
        let (rows, rejected) = match &mut self.operator {
            Some(operator) => {
                let output = operator.process(decoded)?;
                (output.rows, output.rejected)
            }
            None => (Some(decoded), None),
        };
        let at = |offset: i64| usize::try_from(offset - initial.0).ok();
        if let Some(rejected) = rejected {
            let hidden = Coordinates::behind(&rejected, 0)?;
            for row in 0..rejected.num_rows() {
                let (_, offset) = hidden.source(row)?;
                if let Some(slot) = at(offset.0).and_then(|index| expected.get_mut(index)) {
                    *slot = self.on_transform;
                }
            }
        }
        let Some(rows) = rows.filter(|rows| rows.num_rows() > 0) else { return Ok(()) };
        let hidden = Coordinates::of(&rows)?;
        let ordinals = column(&rows, coordinates::ORDINAL)?.as_primitive::<Int32Type>().clone();
        let contents = match &self.encoder {
            Some(encoder) => Some((encoder.bind(&rows)?, self.keys(&rows)?)),
            None => None,
        };
        let mut value = Vec::new();
        for row in 0..rows.num_rows() {
            let row_digest = contents.as_ref().map(|(encoder, keys)| {
                value.clear();
                let has_value = encoder.write(row, &mut value)?;
                let key = (!keys.is_null(row)).then(|| keys.value(row));
                Ok(digest(ordinals.value(row), key, has_value.then_some(value.as_slice())))
            });
            let row_digest: Result<_, UnwritableRow> = row_digest.transpose();
            let (_, Offset(offset)) = hidden.source(row)?;
            let slot = at(offset).and_then(|index| expected.get_mut(index));
            let slot = slot.with_context(|| format!("a row of offset {offset} of {source:?}"))?;
            let Ok(row_digest) = row_digest else {
                // The sink rejects it, as the transform would have.
                *slot = self.on_transform;
                continue;
            };
            match slot {
                Expected::Rows { count, digest } => {
                    *count += 1;
                    *digest = digest.zip(row_digest).map(|(sum, of_row)| sum.wrapping_add(of_row));
                }
                slot => *slot = Expected::Rows { count: 1, digest: row_digest },
            }
        }
        Ok(())
    }

    /// The keys that the sink gives the rows: a column, as text unless it is bytes, or the key of the source record.
    fn keys(&self, rows: &RecordBatch) -> anyhow::Result<BinaryViewArray> {
        let name = self.key.as_deref().unwrap_or(coordinates::KEY);
        let keys = column(rows, name)?;
        let is_bytes = matches!(
            keys.data_type(),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
        );
        let text: ArrayRef = if is_bytes { keys.clone() } else { cast(keys, &DataType::Utf8)? };
        Ok(cast(&text, &DataType::BinaryView)?.as_binary_view().clone())
    }
}

fn column<'a>(rows: &'a RecordBatch, name: &str) -> anyhow::Result<&'a ArrayRef> {
    rows.column_by_name(name).with_context(|| format!("the rows have no column {name}"))
}
