//! Time of one flight row on one core: decode CSV (bad records included), encode as JSON and Avro, decode that Avro again.
//! `cargo bench -p sharestream-kafka --bench decode`.

use std::io::Read;
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_base::{Clock, Env};
use sharestream_core::coordinates;
use sharestream_kafka::formats::{
    AvroFormat, AvroFraming, AvroOutput, Column, ColumnType, CsvFormat, Format, OutputFormat, RowEncoder,
};
use sharestream_kafka::source::{FinishedRows, RecordBytes, RecordCoordinates, RowsBuilder, TopicNames};

const TEXT_COLUMNS: [&str; 4] = ["carrier", "tailnum", "origin", "dest"];
const BATCH_ROWS: usize = 4_096;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/flights.csv.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path)?).read_to_string(&mut text)?;
    let mut lines = text.lines();
    let header = lines.next().ok_or("no header")?;
    let column = |name: &str| {
        let column_type = match name {
            "time_hour" => ColumnType::Timestamp,
            name if TEXT_COLUMNS.contains(&name) => ColumnType::String,
            _ => ColumnType::Int64,
        };
        Column::new(name, column_type)
    };
    let columns: Vec<Column> = header.split(',').map(column).collect();
    let format = Format::Csv(CsvFormat { columns, ..CsvFormat::default() });
    let lines: Vec<Bytes> = lines.map(|line| Bytes::copy_from_slice(line.as_bytes())).collect();

    let avro = AvroOutput::default();
    let user = format.user_schema();
    let avro_format = AvroFormat { schema: avro.schema_of(user.fields())?, framing: AvroFraming::None };
    let clock = Env::system().clock;
    let topics = || TopicNames::new([("flights", TopicId::default())]);
    let mut csv = RowsBuilder::new(&format, topics());
    let mut datums = RowsBuilder::new(&Format::Avro(avro_format), topics());
    for round in 0..3 {
        let mut times = Times::default();
        let (mut good, mut bad) = (0, 0);
        for chunk in lines.chunks(BATCH_ROWS) {
            let finished = decode(&clock, &mut csv, chunk, &mut times.csv)?;
            bad += finished.rejected.as_ref().map_or(0, |rejected| rejected.num_rows());
            let Some(rows) = finished.rows else { continue };
            good += rows.num_rows();
            encode(&clock, &OutputFormat::Json, &rows, &mut times.json)?;
            let values = encode(&clock, &OutputFormat::Avro(avro.clone()), &rows, &mut times.to_avro)?;
            let again = decode(&clock, &mut datums, &values, &mut times.of_avro)?.rows.ok_or("no rows")?;
            let users = coordinates::user_column_count(rows.schema_ref());
            assert_eq!(again.columns()[..users], rows.columns()[..users]);
        }
        let per = |time: Duration, rows: usize| time.as_nanos() as f64 / rows as f64;
        println!(
            "round {round}: {good} good and {bad} bad records; ns a record: CSV decoded {:.0}; JSON encoded {:.0}; Avro encoded {:.0}, \
             decoded {:.0}",
            per(times.csv, good + bad),
            per(times.json, good),
            per(times.to_avro, good),
            per(times.of_avro, good),
        );
    }
    Ok(())
}

#[derive(Default)]
struct Times {
    csv: Duration,
    json: Duration,
    to_avro: Duration,
    of_avro: Duration,
}

/// A batch of these values.
fn decode(
    clock: &Clock,
    builder: &mut RowsBuilder,
    values: &[Bytes],
    time: &mut Duration,
) -> Outcome<FinishedRows> {
    let block = Bytes::from(values.concat());
    let start = clock.now();
    builder.add_block(&block);
    let mut position = 0;
    for (index, value) in values.iter().enumerate() {
        let coordinates = RecordCoordinates {
            partition: PartitionIndex(0),
            offset: Offset(index as i64),
            timestamp_ms: 0,
            delivery_count: 1,
        };
        let bytes = &block[position..position + value.len()];
        position += value.len();
        let record = RecordBytes { key: Some(b"UA"), value: Some(bytes), headers: None };
        let _bad_record = builder.push(0, &coordinates, &record);
    }
    let finished = builder.finish()?;
    *time += clock.now() - start;
    Ok(finished)
}

/// The values of these rows.
fn encode(
    clock: &Clock,
    format: &OutputFormat,
    rows: &RecordBatch,
    time: &mut Duration,
) -> Outcome<Vec<Bytes>> {
    let mut values = Vec::with_capacity(rows.num_rows());
    let mut value = Vec::new();
    let start = clock.now();
    let bound = RowEncoder::new(format, rows.schema_ref())?.bind(rows)?;
    for row in 0..rows.num_rows() {
        value.clear();
        bound.write(row, &mut value)?;
        values.push(Bytes::copy_from_slice(&value));
    }
    *time += clock.now() - start;
    Ok(values)
}
