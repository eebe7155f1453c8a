//! Time of one flight row on one core: decode (bad records included) and encode. `cargo bench -p sharestream-kafka`.

use std::io::Read;

use bytes::Bytes;
use sharestream_base::Env;
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_kafka::formats::{Column, ColumnType, CsvFormat, Format, OutputFormat, RowEncoder};
use sharestream_kafka::source::{RecordBytes, RecordCoordinates, RowsBuilder, TopicNames};

const TEXT_COLUMNS: [&str; 4] = ["carrier", "tailnum", "origin", "dest"];
const BATCH_ROWS: usize = 4_096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
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

    let clock = Env::system().clock;
    let mut builder = RowsBuilder::new(&format, TopicNames::new([("flights", TopicId::default())]));
    for round in 0..3 {
        let (mut decode, mut encode) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
        let (mut good, mut bad, mut bytes) = (0, 0, 0);
        let mut value = Vec::new();
        for chunk in lines.chunks(BATCH_ROWS) {
            let block = Bytes::from(chunk.concat());
            let start = clock.now();
            builder.add_block(&block);
            let mut position = 0;
            for (index, line) in chunk.iter().enumerate() {
                let coordinates = RecordCoordinates {
                    partition: PartitionIndex(0),
                    offset: Offset(index as i64),
                    timestamp_ms: 0,
                    delivery_count: 1,
                };
                let text = &block[position..position + line.len()];
                position += line.len();
                let record = RecordBytes { key: Some(b"UA"), value: Some(text), headers: None };
                let _bad_record = builder.push(0, &coordinates, &record);
            }
            let finished = builder.finish()?;
            decode += clock.now() - start;
            bad += finished.rejected.as_ref().map_or(0, |rejected| rejected.num_rows());
            let Some(rows) = finished.rows else { continue };
            good += rows.num_rows();
            let start = clock.now();
            let bound = RowEncoder::new(&OutputFormat::Json, rows.schema_ref())?.bind(&rows)?;
            for row in 0..rows.num_rows() {
                value.clear();
                bound.write(row, &mut value)?;
                bytes += value.len();
            }
            encode += clock.now() - start;
        }
        let per = |time: std::time::Duration, rows: usize| time.as_nanos() as f64 / rows as f64;
        println!(
            "round {round}: {good} good and {bad} bad records; decode {:.0} ns a record; JSON {:.0} ns a row of {} bytes",
            per(decode, good + bad),
            per(encode, good),
            bytes / good
        );
    }
    Ok(())
}
