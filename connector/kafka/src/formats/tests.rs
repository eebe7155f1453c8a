//! Decoding undoes encoding, and a bad record leaves no trace.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMillisecondArray,
};
use arrow_schema::Schema;
use proptest::prelude::*;
use sharestream_core::coordinates;

use super::*;

fn columns() -> Vec<Column> {
    ColumnType::ALL.into_iter().map(|column_type| Column::new(column_type.name(), column_type)).collect()
}

fn csv(nulls: &[&str]) -> Format {
    let nulls = nulls.iter().map(|null| (*null).to_owned()).collect();
    Format::Csv(CsvFormat { columns: columns(), nulls, ..CsvFormat::default() })
}

fn no_values() -> ArrayRef {
    Arc::new(Int32Array::new_null(0))
}

/// The user columns as a batch that ends with (null) hidden columns, as encoders want it.
fn encoder_input(user: &Schema, columns: Vec<ArrayRef>) -> RecordBatch {
    let row_count = columns[0].len();
    let schema = coordinates::with_coordinates(user);
    let hidden = &schema.fields()[user.fields().len()..];
    let nullable: Vec<_> =
        hidden.iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true))).collect();
    let nulls = nullable.iter().map(|field| arrow_array::new_null_array(field.data_type(), row_count));
    let fields: Vec<_> = user.fields().iter().cloned().chain(nullable.iter().cloned()).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().chain(nulls).collect()).unwrap()
}

type Row = (Option<i32>, Option<i64>, Option<f64>, Option<bool>, Option<String>, Option<i32>, Option<i64>);

fn row() -> impl Strategy<Value = Row> {
    use proptest::option::of;
    (
        of(any::<i32>()),
        of(any::<i64>()),
        of(-1e9..1e9f64),
        of(any::<bool>()),
        of("[ -~\u{e4}\u{20ac}\n\",]{0,12}"),
        of(-700_000i32..2_900_000),
        of(-60_000_000_000_000i64..250_000_000_000_000),
    )
}

fn arrays(rows: &[Row]) -> Vec<ArrayRef> {
    vec![
        Arc::new(Int32Array::from_iter(rows.iter().map(|row| row.0))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.1))),
        Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.2))),
        Arc::new(BooleanArray::from_iter(rows.iter().map(|row| row.3))),
        Arc::new(StringArray::from_iter(rows.iter().map(|row| row.4.as_deref()))),
        Arc::new(Date32Array::from_iter(rows.iter().map(|row| row.5))),
        Arc::new(TimestampMillisecondArray::from_iter(rows.iter().map(|row| row.6)).with_timezone("UTC")),
    ]
}

fn round_trip(format: &Format, output: &OutputFormat, rows: &[Row]) -> Vec<ArrayRef> {
    let batch = encoder_input(&format.user_schema(), arrays(rows));
    let bound = RowEncoder::new(output, batch.schema_ref()).unwrap().bind(&batch).unwrap();
    let mut decoder = RowDecoder::new(format);
    let mut value = Vec::new();
    for row in 0..rows.len() {
        value.clear();
        assert!(bound.write(row, &mut value).unwrap());
        decoder.decode(Some(&value)).unwrap_or_else(|error| {
            panic!("{error}: {}", String::from_utf8_lossy(&value));
        });
    }
    decoder.finish(&no_values()).unwrap()
}

proptest! {
    #[test]
    fn csv_reads_what_it_writes(rows in proptest::collection::vec(row(), 1..20)) {
        let output = OutputFormat::Csv(CsvOutput { null: "\\N".to_owned(), ..CsvOutput::default() });
        let read = round_trip(&csv(&["\\N"]), &output, &rows);
        prop_assert_eq!(read, arrays(&rows));
    }

    #[test]
    fn json_reads_what_it_writes(rows in proptest::collection::vec(row(), 1..20)) {
        let format = Format::Json(JsonFormat { columns: columns(), strict: true });
        let read = round_trip(&format, &OutputFormat::Json, &rows);
        prop_assert_eq!(read, arrays(&rows));
    }

    #[test]
    fn written_json_is_json(text in any::<String>(), number in any::<f64>()) {
        let user = Schema::new(vec![
            arrow_schema::Field::new("te\"xt", arrow_schema::DataType::Utf8, true),
            arrow_schema::Field::new("number", arrow_schema::DataType::Float64, true),
        ]);
        let columns: Vec<ArrayRef> =
            vec![Arc::new(StringArray::from(vec![text.as_str()])), Arc::new(Float64Array::from(vec![number]))];
        let batch = encoder_input(&user, columns);
        let bound = RowEncoder::new(&OutputFormat::Json, batch.schema_ref()).unwrap().bind(&batch).unwrap();
        let mut value = Vec::new();
        bound.write(0, &mut value).unwrap();
        let parsed: serde_json::Value = serde_json::from_slice(&value).unwrap();
        prop_assert_eq!(parsed["te\"xt"].as_str(), Some(text.as_str()));
        prop_assert_eq!(parsed["number"].is_null(), !number.is_finite());
    }

    #[test]
    fn bad_csv_records_leave_no_trace(lines in proptest::collection::vec("[0-9a-z\",\n]{0,16}", 0..40)) {
        let format = Format::Csv(CsvFormat {
            columns: vec![
                Column::new("a", ColumnType::Int64), Column::new("b", ColumnType::String),
                Column::new("c", ColumnType::Int32).not_null(),
            ],
            nulls: vec!["".to_owned()],
            ..CsvFormat::default()
        });
        let mut decoder = RowDecoder::new(&format);
        let good: Vec<_> = lines.iter().filter(|line| decoder.decode(Some(line.as_bytes())).is_ok()).collect();
        let mixed = decoder.finish(&no_values()).unwrap();
        for line in good {
            decoder.decode(Some(line.as_bytes())).unwrap();
        }
        prop_assert_eq!(mixed, decoder.finish(&no_values()).unwrap());
    }
}

#[test]
fn na_is_a_bad_number_unless_the_job_file_says_that_it_is_null() {
    let line = b"1,NA,0.5,true,NA,2013-01-01,2013-01-01T10:00:00Z";
    let error = RowDecoder::new(&csv(&[])).decode(Some(line)).unwrap_err();
    assert_eq!(error.to_string(), "column int64: not an int64");
    let mut decoder = RowDecoder::new(&csv(&["NA"]));
    decoder.decode(Some(line)).unwrap();
    let columns = decoder.finish(&no_values()).unwrap();
    assert!(columns[1].as_primitive::<Int64Type>().is_null(0));
    assert!(columns[4].is_null(0));
}

#[test]
fn the_error_of_a_bad_csv_record_says_what_is_wrong() {
    let mut decoder = RowDecoder::new(&csv(&[]));
    let bad: [(Option<&[u8]>, &str); 8] = [
        (None, "the record has no value"),
        (Some(b"\xff"), "the value is not UTF-8 (first bad byte at 0)"),
        (Some(b"1,2,3"), "expected 7 columns, found 3"),
        (Some(b"1,2,3,true,x,2013-01-01,2013-01-01T10:00:00Z,9"), "expected 7 columns, found 8"),
        (Some(b"1,2,3,true,\"x,2013"), "not one CSV line: a quoted field has no end"),
        (Some(b"1,2,3,true,\"x\"y,2013"), "not one CSV line: text after the end of a quoted field"),
        (Some(b"1,2\n,3"), "not one CSV line: more than one line"),
        (Some(b"1,2,3,maybe,x,2013-01-01,2013-01-01T10:00:00Z"), "column boolean: not a boolean"),
    ];
    for (value, expected) in bad {
        assert_eq!(decoder.decode(value).unwrap_err().to_string(), expected);
    }
    assert_eq!(decoder.finish(&no_values()).unwrap()[0].len(), 0);
}

#[test]
fn the_error_of_a_bad_json_record_says_what_is_wrong() {
    let format = Format::Json(JsonFormat {
        columns: vec![Column::new("a", ColumnType::Int64).not_null(), Column::new("b", ColumnType::String)],
        strict: true,
    });
    let mut decoder = RowDecoder::new(&format);
    let bad = [
        (r#"{"a":"1"}"#, "column a: not an int64"),
        (r#"{"a":1.5}"#, "column a: not an int64"),
        (r#"{"b":"x"}"#, "column a: null, but the column is not nullable"),
        (r#"{"a":1,"a":2}"#, "field a comes twice"),
        (r#"{"a":1,"c":2}"#, "a field that the schema does not name"),
        (r#"{"a":1} {}"#, "trailing characters"),
        (r#"{"a":[1]}"#, "a plain value in column a"),
        ("[1]", "a JSON object"),
        ("", "EOF"),
    ];
    for (value, expected) in bad {
        let error = decoder.decode(Some(value.as_bytes())).unwrap_err().to_string();
        assert!(error.contains(expected), "{value}: {error}");
    }
    decoder.decode(Some(br#"{"b":"\u00e4","a":7}"#)).unwrap();
    let columns = decoder.finish(&no_values()).unwrap();
    assert_eq!(columns[0].as_primitive::<Int64Type>().values(), &[7]);
    assert_eq!(columns[1].as_string::<i32>().value(0), "\u{e4}");
}

#[test]
fn a_sink_refuses_what_it_cannot_write() {
    let nested = Schema::new(vec![arrow_schema::Field::new_list(
        "list",
        arrow_schema::Field::new_list_field(arrow_schema::DataType::Int64, true),
        true,
    )]);
    let schema = coordinates::with_coordinates(&nested);
    assert!(RowEncoder::new(&OutputFormat::Json, &schema).unwrap_err().contains("flat columns only"));
    let two = coordinates::with_coordinates(&csv(&[]).user_schema());
    assert!(RowEncoder::new(&OutputFormat::Raw, &two).unwrap_err().contains("writes one column"));
}
