//! Every type there and back, and what is refused.

use apache_avro::{Decimal, Uuid};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::*;
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use proptest::prelude::*;

use super::*;

/// Every type that a column can have, alone and with null.
const ALL: &str = r#"{"type":"record","name":"All","namespace":"a.b","fields":[
    {"name":"nothing","type":"null"},
    {"name":"boolean","type":"boolean"},
    {"name":"int","type":"int"},
    {"name":"long","type":"long"},
    {"name":"float","type":"float"},
    {"name":"double","type":"double"},
    {"name":"bytes","type":"bytes"},
    {"name":"string","type":"string"},
    {"name":"fixed","type":{"type":"fixed","name":"Four","size":4}},
    {"name":"enum","type":{"type":"enum","name":"Color","symbols":["RED","GREEN","BLUE"]}},
    {"name":"array","type":{"type":"array","items":["null","string"]}},
    {"name":"map","type":{"type":"map","values":"long"}},
    {"name":"record","type":{"type":"record","name":"Point","fields":[
        {"name":"x","type":"double"},{"name":"color","type":["Color","null"]}]}},
    {"name":"maybe","type":["null","Point"]},
    {"name":"other","type":["string","null"]},
    {"name":"only","type":["long"]},
    {"name":"decimal","type":{"type":"bytes","logicalType":"decimal","precision":38,"scale":4}},
    {"name":"wide","type":{"type":"bytes","logicalType":"decimal","precision":60,"scale":2}},
    {"name":"fixed_decimal","type":{"type":"fixed","name":"Money","size":8,"logicalType":"decimal","precision":18,"scale":2}},
    {"name":"date","type":{"type":"int","logicalType":"date"}},
    {"name":"time_millis","type":{"type":"int","logicalType":"time-millis"}},
    {"name":"time_micros","type":{"type":"long","logicalType":"time-micros"}},
    {"name":"timestamp_millis","type":{"type":"long","logicalType":"timestamp-millis"}},
    {"name":"timestamp_micros","type":{"type":"long","logicalType":"timestamp-micros"}},
    {"name":"timestamp_nanos","type":{"type":"long","logicalType":"timestamp-nanos"}},
    {"name":"local_millis","type":{"type":"long","logicalType":"local-timestamp-millis"}},
    {"name":"local_micros","type":{"type":"long","logicalType":"local-timestamp-micros"}},
    {"name":"local_nanos","type":{"type":"long","logicalType":"local-timestamp-nanos"}},
    {"name":"uuid","type":{"type":"string","logicalType":"uuid"}},
    {"name":"uuid_fixed","type":{"type":"fixed","name":"Id","size":16,"logicalType":"uuid"}},
    {"name":"nested","type":["null",{"type":"array","items":{"type":"map","values":{"type":"array","items":"int"}}}]}
]}"#;

/// A union of null and what `value` gives; `place` is that of null.
fn optional(value: impl Strategy<Value = Value>, place: u32) -> impl Strategy<Value = Value> {
    let union = move |value: Option<Value>| match value {
        Some(value) => Value::Union(1 - place, Box::new(value)),
        None => Value::Union(place, Box::new(Value::Null)),
    };
    proptest::option::of(value).prop_map(union)
}

fn color() -> impl Strategy<Value = Value> {
    (0u32..3).prop_map(|index| Value::Enum(index, ["RED", "GREEN", "BLUE"][index as usize].to_owned()))
}

fn point() -> impl Strategy<Value = Value> {
    let fields = (any::<f64>().prop_map(Value::Double), optional(color(), 1));
    fields.prop_map(|(x, color)| Value::Record(vec![("x".to_owned(), x), ("color".to_owned(), color)]))
}

/// A number of at most so many digits, in the fewest bytes.
fn decimal(digits: u32) -> impl Strategy<Value = Vec<u8>> {
    let end = 10i128.pow(digits);
    (1 - end..end).prop_map(|number| {
        let bytes = number.to_be_bytes();
        let sign = if number < 0 { 0xff } else { 0 };
        let first = (0..15).find(|at| bytes[*at] != sign || (bytes[at + 1] ^ sign) & 0x80 != 0).unwrap_or(15);
        bytes[first..].to_vec()
    })
}

/// At most one entry: the other implementation writes more in any order.
fn map(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let entries = proptest::collection::hash_map("[a-z\u{e4}]{0,3}", value, 0..2);
    entries.prop_map(Value::Map)
}

fn array(item: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    proptest::collection::vec(item, 0..4).prop_map(Value::Array)
}

fn row() -> impl Strategy<Value = Value> {
    let text = || "[ -~\u{e4}\u{20ac}]{0,8}";
    let plain = (
        any::<bool>().prop_map(Value::Boolean),
        any::<i32>().prop_map(Value::Int),
        any::<i64>().prop_map(Value::Long),
        any::<f32>().prop_map(Value::Float),
        any::<f64>().prop_map(Value::Double),
        any::<Vec<u8>>().prop_map(Value::Bytes),
        text().prop_map(Value::String),
        any::<[u8; 4]>().prop_map(|bytes| Value::Fixed(4, bytes.to_vec())),
        color(),
        array(optional(text().prop_map(Value::String), 0)),
        map(any::<i64>().prop_map(Value::Long)),
        point(),
    );
    let more = (
        optional(point(), 0),
        optional(text().prop_map(Value::String), 1),
        any::<i64>().prop_map(|value| Value::Union(0, Box::new(Value::Long(value)))),
        decimal(38).prop_map(|bytes| Value::Decimal(Decimal::from(bytes))),
        decimal(38).prop_map(|bytes| Value::Decimal(Decimal::from(bytes))),
        decimal(18).prop_map(|bytes| Value::Decimal(Decimal::from(bytes))),
        any::<i32>().prop_map(Value::Date),
        any::<i32>().prop_map(Value::TimeMillis),
        any::<i64>().prop_map(Value::TimeMicros),
        any::<[i64; 6]>(),
        any::<[u8; 16]>().prop_map(|bytes| Value::Uuid(Uuid::from_bytes(bytes))),
        optional(array(map(array(any::<i32>().prop_map(Value::Int)))), 0),
    );
    (plain, more).prop_map(|(plain, more)| {
        let [millis, micros, nanos, local_millis, local_micros, local_nanos] = more.9;
        let values = vec![
            Value::Null,
            plain.0,
            plain.1,
            plain.2,
            plain.3,
            plain.4,
            plain.5,
            plain.6,
            plain.7,
            plain.8,
            plain.9,
            plain.10,
            plain.11,
            more.0,
            more.1,
            more.2,
            more.3,
            more.4,
            more.5,
            more.6,
            more.7,
            more.8,
            Value::TimestampMillis(millis),
            Value::TimestampMicros(micros),
            Value::TimestampNanos(nanos),
            Value::LocalTimestampMillis(local_millis),
            Value::LocalTimestampMicros(local_micros),
            Value::LocalTimestampNanos(local_nanos),
            more.10.clone(),
            more.10,
            more.11,
        ];
        let schema = AvroSchema::parse(ALL).unwrap();
        let names = schema.root_fields().unwrap().iter().map(|field| field.name.clone());
        Value::Record(names.zip(values).collect())
    })
}

proptest! {
    /// Read, and written again with the same schema, it is what the other implementation has written.
    #[test]
    fn every_type_comes_back_as_the_witness_has_written_it(rows in proptest::collection::vec(row(), 1..8)) {
        let witness = WitnessSchema::parse_str(ALL).unwrap();
        let datums: Vec<Vec<u8>> = rows.iter().map(|row| witness_bytes(&witness, row)).collect();
        let mut decoder = decoder(ALL);
        for datum in &datums {
            decoder.decode(Some(datum)).unwrap();
        }
        let batch = batch(ALL, finish(&mut decoder));
        prop_assert_eq!(encoded(given(ALL), &batch), datums);
    }

    /// With the schema that its columns make it is another datum, of the same values.
    #[test]
    fn columns_come_back_by_the_schema_that_they_make(rows in proptest::collection::vec(row(), 1..8)) {
        let witness = WitnessSchema::parse_str(ALL).unwrap();
        let mut decoder = decoder(ALL);
        for row in &rows {
            decoder.decode(Some(&witness_bytes(&witness, row))).unwrap();
        }
        let batch = batch(ALL, finish(&mut decoder));
        let output = AvroOutput { record_name: "x.Out".to_owned(), ..AvroOutput::default() };
        let made = output.schema_of(batch.schema_ref().fields()).unwrap();
        prop_assert!(WitnessSchema::parse_str(&made).is_ok(), "{}", made);
        let mut decoder = super::decoder(&made);
        for datum in encoded(output, &batch) {
            decoder.decode(Some(&datum)).unwrap();
        }
        let columns = finish(&mut decoder);
        for (column, own) in columns.iter().zip(batch.columns()) {
            prop_assert_eq!(column.to_data(), own.to_data());
        }
    }

    /// The good records of any mixture are what they are alone.
    #[test]
    fn bad_records_leave_no_trace(
        rows in proptest::collection::vec((row(), any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 1..12),
        noise in proptest::collection::vec(any::<Vec<u8>>(), 0..6),
    ) {
        let witness = WitnessSchema::parse_str(ALL).unwrap();
        let damaged = rows.iter().map(|(row, place, byte, damage)| {
            let mut datum = witness_bytes(&witness, row);
            let at = place.index(datum.len());
            match damage {
                0 => datum[at] = *byte,
                1 => datum.truncate(at),
                2 => datum.insert(at, *byte),
                _ => {}
            }
            datum
        });
        let values: Vec<Vec<u8>> = damaged.chain(noise).collect();
        let mut decoder = decoder(ALL);
        let good: Vec<_> = values.iter().filter(|value| decoder.decode(Some(value)).is_ok()).collect();
        let mixed = finish(&mut decoder);
        for value in &good {
            decoder.decode(Some(value)).unwrap();
        }
        let alone = finish(&mut decoder);
        for (one, other) in mixed.iter().zip(&alone) {
            prop_assert_eq!(one.to_data(), other.to_data());
        }
        prop_assert_eq!(mixed[0].len(), good.len());
    }
}

#[test]
fn columns_have_the_types_of_the_table() {
    let schema = Format::Avro(AvroFormat { schema: ALL.to_owned(), ..AvroFormat::default() }).user_schema();
    let of = |name: &str| schema.field_with_name(name).unwrap();
    let utc = |unit| DataType::Timestamp(unit, Some("UTC".into()));
    let expected = [
        ("nothing", DataType::Null),
        ("boolean", DataType::Boolean),
        ("int", DataType::Int32),
        ("long", DataType::Int64),
        ("float", DataType::Float32),
        ("double", DataType::Float64),
        ("bytes", DataType::Binary),
        ("string", DataType::Utf8),
        ("fixed", DataType::FixedSizeBinary(4)),
        ("enum", DataType::Utf8),
        ("other", DataType::Utf8),
        ("only", DataType::Int64),
        ("decimal", DataType::Decimal128(38, 4)),
        ("wide", DataType::Decimal256(60, 2)),
        ("fixed_decimal", DataType::Decimal128(18, 2)),
        ("date", DataType::Date32),
        ("time_millis", DataType::Time32(TimeUnit::Millisecond)),
        ("time_micros", DataType::Time64(TimeUnit::Microsecond)),
        ("timestamp_millis", utc(TimeUnit::Millisecond)),
        ("timestamp_micros", utc(TimeUnit::Microsecond)),
        ("timestamp_nanos", utc(TimeUnit::Nanosecond)),
        ("local_millis", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("uuid", DataType::Utf8),
        ("uuid_fixed", DataType::Utf8),
    ];
    for (name, data_type) in expected {
        assert_eq!(*of(name).data_type(), data_type, "{name}");
    }
    let nullable: Vec<&str> = schema
        .fields()
        .iter()
        .filter(|field| field.is_nullable())
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(nullable, ["nothing", "maybe", "other", "nested"]);
}

fn record(fields: &str) -> String {
    format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#)
}

#[test]
fn a_schema_that_columns_cannot_hold_is_refused_with_the_field() {
    let faults = |schema: &str| {
        Format::Avro(AvroFormat { schema: schema.to_owned(), ..AvroFormat::default() }).faults().join("; ")
    };
    let two = record(r#"{"name":"a","type":["int","string"]}"#);
    assert!(faults(&two).contains("field 'a': a union of more than null and one type"), "{}", faults(&two));
    let own = record(r#"{"name":"a","type":["null","R"]}"#);
    assert!(faults(&own).contains("holds itself"));
    assert!(faults("\"int\"").contains("rows need a record"));
    assert!(faults("").contains("not JSON"));
    assert!(faults(&record("")).contains("at least one column"));
    assert!(faults(&record(r#"{"name":"_offset","type":"int"}"#)).contains("hidden column"));
}

#[test]
fn a_record_names_many_times_by_few_words_is_no_bomb() {
    let mut schema = r#"{"type":"record","name":"L0","fields":[{"name":"a","type":"int"}]}"#.to_owned();
    for level in 1..24 {
        let below = format!("L{}", level - 1);
        schema = format!(
            r#"{{"type":"record","name":"L{level}","fields":[{{"name":"a","type":{schema}}},{{"name":"b","type":"{below}"}}]}}"#
        );
    }
    let format = AvroFormat { schema, ..AvroFormat::default() };
    assert!(format.columns().unwrap_err().contains("columns"));
}

#[test]
fn a_few_bytes_that_stand_for_billions_of_items_are_a_bad_record() {
    let schema = record(r#"{"name":"a","type":{"type":"array","items":"null"}}"#);
    let mut bytes = Vec::new();
    encode::write_long(i64::MAX, &mut bytes);
    let mut decoder = decoder(&schema);
    let error = decoder.decode(Some(&bytes)).unwrap_err().to_string();
    assert_eq!(error, "not an Avro datum of its schema: a: it stands for far more than its bytes");
    // Nor as what a reader skips.
    let reader = record(r#"{"name":"b","type":"int","default":1}"#);
    let error = decoder_of(&reader, &[&schema]).decode(Some(&framed(0, &bytes))).unwrap_err().to_string();
    assert!(error.contains("far more than its bytes"), "{error}");
    // A few are fine.
    decoder.decode(Some(&[8, 0])).unwrap();
    assert_eq!(finish(&mut decoder)[0].as_list::<i32>().value(0).len(), 4);
}

#[test]
fn the_error_of_a_bad_datum_says_where_it_is() {
    let inner = r#"{"name":"r","type":{"type":"record","name":"I","fields":[
        {"name":"text","type":"string"},{"name":"e","type":{"type":"enum","name":"E","symbols":["A"]}}]}}"#;
    let mut decoder = decoder(&record(inner));
    let bad: [(Option<&[u8]>, &str); 6] = [
        (None, "the record has no value"),
        (Some(&[]), "not an Avro datum of its schema: r: text: it ends too early"),
        (Some(&[2, 0xff, 0]), "not an Avro datum of its schema: r: text: text that is not UTF-8"),
        (Some(&[1]), "not an Avro datum of its schema: r: text: a length below zero"),
        (Some(&[0, 2]), "not an Avro datum of its schema: r: e: an index that is not below 1"),
        (Some(&[0, 0, 7]), "not an Avro datum of its schema: 1 bytes are left behind it"),
    ];
    for (value, expected) in bad {
        assert_eq!(decoder.decode(value).unwrap_err().to_string(), expected);
    }
    decoder.decode(Some(&[0, 0])).unwrap();
}

#[test]
fn decimals_and_uuids_that_do_not_fit_are_bad_records() {
    let schema = record(
        r#"{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":3}},
                           {"name":"u","type":{"type":"string","logicalType":"uuid"}}"#,
    );
    let datum = |decimal: &[u8], uuid: &str| {
        let mut bytes = Vec::new();
        encode::write_long(decimal.len() as i64, &mut bytes);
        bytes.extend_from_slice(decimal);
        encode::write_long(uuid.len() as i64, &mut bytes);
        [bytes, uuid.as_bytes().to_vec()].concat()
    };
    let uuid = "123e4567-e89b-12d3-a456-426614174000";
    let mut decoder = decoder(&schema);
    decoder.decode(Some(&datum(&[0x03, 0xe7], uuid))).unwrap();
    decoder.decode(Some(&datum(&[], uuid))).unwrap();
    decoder.decode(Some(&datum(&[0xff; 40], uuid))).unwrap();
    let error = |value: &[u8], decoder: &mut RowDecoder| decoder.decode(Some(value)).unwrap_err().to_string();
    assert!(error(&datum(&[0x03, 0xe8], uuid), &mut decoder).contains("more than 3 digits"));
    assert!(error(&datum(&[1; 40], uuid), &mut decoder).contains("more than 3 digits"));
    assert!(error(&datum(&[1], "{123e4567-e89b-12d3-a456-426614174000}"), &mut decoder).contains("no UUID"));
    let columns = finish(&mut decoder);
    assert_eq!(columns[0].as_primitive::<Decimal128Type>().values(), &[999, 0, -1]);
}

fn refusal(schema: Option<&str>, fields: Vec<Field>) -> String {
    let schema = schema.map(str::to_owned);
    let output = OutputFormat::Avro(AvroOutput { schema, ..AvroOutput::default() });
    let columns = coordinates::with_coordinates(&Schema::new(fields));
    RowEncoder::new(&output, &columns).unwrap_err()
}

#[test]
fn a_sink_refuses_columns_that_its_schema_has_no_place_for() {
    let schema = record(r#"{"name":"a","type":"int"},{"name":"b","type":"string","default":"x"}"#);
    let schema = Some(schema.as_str());
    let of = |name: &str, data_type, nullable| Field::new(name, data_type, nullable);
    let a = || of("a", DataType::Int32, false);
    assert!(
        refusal(schema, vec![of("a", DataType::Int64, false)])
            .contains("column a: Int64 does not fit an int")
    );
    assert!(refusal(schema, vec![of("a", DataType::Int32, true)]).contains("it may be null"));
    assert!(
        refusal(schema, vec![a(), of("c", DataType::Int32, false)]).contains("column c is no field of R")
    );
    assert!(refusal(schema, vec![of("b", DataType::Utf8, false)]).contains("no column gives field 'a' of R"));
    let late = record(r#"{"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}}"#);
    let nanos = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    assert!(refusal(Some(&late), vec![of("t", nanos, false)]).contains("column t"));
    // Without a schema, what Avro has no type for.
    assert!(refusal(None, vec![of("n", DataType::UInt64, false)]).contains("column n is UInt64"));
    assert!(refusal(None, vec![of("dep-delay", DataType::Int32, false)]).contains("write AS"));
    let interval = DataType::Interval(arrow_schema::IntervalUnit::DayTime);
    assert!(refusal(None, vec![of("i", interval, true)]).contains("column i"));
}

#[test]
fn a_value_without_a_place_in_the_schema_is_an_error_of_its_row() {
    let schema = record(
        r#"{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}},
           {"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}},
           {"name":"rest","type":["null","int"],"default":null}"#,
    );
    let seconds = DataType::Timestamp(TimeUnit::Second, Some("UTC".into()));
    let fields = Schema::new(vec![Field::new("e", DataType::Utf8, false), Field::new("t", seconds, false)]);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["B", "C", "A"]));
    let times: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1, 2, i64::MAX]).with_timezone("UTC"));
    let rows = RecordBatch::try_new(Arc::new(fields), vec![texts, times]).unwrap();
    let columns = coordinates::with_coordinates(rows.schema_ref());
    let encoder = RowEncoder::new(&OutputFormat::Avro(given(&schema)), &columns).unwrap();
    let bound = encoder.bind(&rows).unwrap();
    let mut value = Vec::new();
    assert_eq!(bound.write(0, &mut value), Ok(true));
    // B, 1,000 ms, and the default.
    assert_eq!(value, [2, 0xd0, 0x0f, 0]);
    let error = |row| bound.write(row, &mut Vec::new()).unwrap_err().to_string();
    assert_eq!(error(1), "output column e: a text that is none of the enum's symbols");
    assert_eq!(error(2), "output column t: a time that is too far away for its unit");
}

#[test]
fn columns_of_every_width_are_written() {
    let strings: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b"]));
    let dictionary: ArrayRef = Arc::new(DictionaryArray::<Int8Type>::from_iter(["x", "y"]));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i8", Arc::new(Int8Array::from(vec![-1, 1]))),
        ("u16", Arc::new(UInt16Array::from(vec![1, 65_535]))),
        ("u32", Arc::new(UInt32Array::from(vec![1, u32::MAX]))),
        ("f16", Arc::new(arrow_cast::cast(&Float32Array::from(vec![0.5, 1.0]), &DataType::Float16).unwrap())),
        ("view", strings),
        ("dictionary", dictionary),
        ("large", Arc::new(LargeBinaryArray::from(vec![&b"l"[..], b"m"]))),
        ("seconds", Arc::new(Time32SecondArray::from(vec![1, 2]))),
        ("date64", Arc::new(Date64Array::from(vec![86_400_000, 0]))),
        ("d32", Arc::new(Decimal32Array::from(vec![-129, 128]).with_precision_and_scale(9, 2).unwrap())),
        ("nothing", Arc::new(NullArray::new(2))),
    ];
    let fields: Fields =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), false)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    let made = AvroOutput::default().schema_of(rows.schema_ref().fields()).unwrap();
    let mut decoder = decoder(&made);
    for datum in encoded(AvroOutput::default(), &rows) {
        decoder.decode(Some(&datum)).unwrap();
    }
    let back = finish(&mut decoder);
    assert_eq!(back[1].as_primitive::<Int32Type>().values(), &[1, 65_535]);
    assert_eq!(back[2].as_primitive::<Int64Type>().values(), &[1, i64::from(u32::MAX)]);
    assert_eq!(back[3].as_primitive::<Float32Type>().values(), &[0.5, 1.0]);
    assert_eq!(back[4].as_string::<i32>().value(1), "b");
    assert_eq!(back[5].as_string::<i32>().value(0), "x");
    assert_eq!(back[7].as_primitive::<Time32MillisecondType>().values(), &[1_000, 2_000]);
    assert_eq!(back[8].as_primitive::<TimestampMillisecondType>().values(), &[86_400_000, 0]);
    assert_eq!(back[9].as_primitive::<Decimal128Type>().values(), &[-129, 128]);
    assert_eq!(back[10].len(), 2);
}

#[test]
fn names_of_records_are_made_valid_and_free() {
    assert_eq!(record_name_of("delayed-flights.v2"), "delayed_flights_v2");
    assert_eq!(record_name_of("2013"), "_2013");
    let point = |name: &str| {
        Field::new(name, DataType::Struct(Fields::from(vec![Field::new("x", DataType::Int32, false)])), false)
    };
    let fields: Fields = vec![point("a"), Field::new("R_a", DataType::Int32, false)].into();
    let output = AvroOutput { record_name: "n.R".to_owned(), ..AvroOutput::default() };
    let made = output.schema_of(&fields).unwrap();
    assert!(made.contains("\"n.R_a\""), "{made}");
    assert_eq!(made, output.schema_of(&fields).unwrap());
}
