//! Records of other writers than the reader expects.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use proptest::prelude::*;

use super::*;

const READER: &str = r#"{"type":"record","name":"Order","fields":[
    {"name":"id","type":"long"},
    {"name":"amount","type":"double","default":1.5},
    {"name":"note","type":["null","string"],"default":null},
    {"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","DONE","ODD"],"default":"ODD"}},
    {"name":"tags","type":{"type":"array","items":"string"},"default":["none","at all"]},
    {"name":"place","type":{"type":"record","name":"Place","fields":[
        {"name":"x","type":"float"},{"name":"y","type":["null","long"],"default":null}]},
     "default":{"x":0.25}},
    {"name":"renamed","type":"bytes","default":"\u007f\u0001"}
]}"#;

/// Older, newer and stranger writers of the same orders.
const WRITERS: [&str; 4] = [
    READER,
    // Little, in another order, narrower.
    r#"{"type":"record","name":"Order","namespace":"old","fields":[
        {"name":"state","type":{"type":"enum","name":"State","symbols":["DONE","NEW"]}},
        {"name":"id","type":"int"}]}"#,
    // More than is read, with branches that fit or not.
    r#"{"type":"record","name":"Order","fields":[
        {"name":"extra","type":{"type":"map","values":["null",{"type":"array","items":"Order"}]}},
        {"name":"id","type":["null","long","int"]},
        {"name":"renamed","type":"string"},
        {"name":"amount","type":"float"},
        {"name":"note","type":"string"},
        {"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","LOST","DONE"]}},
        {"name":"place","type":{"type":"record","name":"Place","fields":[
            {"name":"z","type":{"type":"fixed","name":"F","size":3}},{"name":"x","type":"int"}]}}]}"#,
    r#"{"type":"record","name":"Order","fields":[
        {"name":"id","type":"long"},
        {"name":"amount","type":"long"},
        {"name":"note","type":["string","null","boolean"]},
        {"name":"state","type":{"type":"enum","name":"State","symbols":["DONE"]}},
        {"name":"tags","type":{"type":"array","items":["string","bytes"]}}]}"#,
];

fn text(pattern: &'static str) -> impl Strategy<Value = Value> {
    pattern.prop_map(Value::String)
}

fn state(symbols: &'static [&'static str]) -> impl Strategy<Value = Value> {
    (0..symbols.len()).prop_map(|index| Value::Enum(index as u32, symbols[index].to_owned()))
}

fn union(branches: Vec<BoxedStrategy<Value>>) -> impl Strategy<Value = Value> {
    let numbered = branches.into_iter().enumerate().map(|(index, value)| {
        value.prop_map(move |value| Value::Union(index as u32, Box::new(value))).boxed()
    });
    proptest::strategy::Union::new(numbered)
}

fn named(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let (names, values): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    let record = move |values: Vec<Value>| {
        Value::Record(names.iter().map(|name| (*name).to_owned()).zip(values).collect())
    };
    values.prop_map(record).boxed()
}

fn datum_of(writer: usize) -> BoxedStrategy<Value> {
    let null = || Just(Value::Null).boxed();
    let long = || any::<i64>().prop_map(Value::Long).boxed();
    let int = || any::<i32>().prop_map(Value::Int).boxed();
    let float = || any::<f32>().prop_map(Value::Float).boxed();
    match writer {
        0 => named(vec![
            ("id", long()),
            ("amount", any::<f64>().prop_map(Value::Double).boxed()),
            ("note", union(vec![null(), text("[a-z]{0,4}").boxed()]).boxed()),
            ("state", state(&["NEW", "DONE", "ODD"]).boxed()),
            ("tags", proptest::collection::vec(text("[a-z]{0,4}"), 0..3).prop_map(Value::Array).boxed()),
            ("place", named(vec![("x", float()), ("y", union(vec![null(), long()]).boxed())])),
            ("renamed", any::<Vec<u8>>().prop_map(Value::Bytes).boxed()),
        ]),
        1 => named(vec![("state", state(&["DONE", "NEW"]).boxed()), ("id", int())]),
        2 => {
            let nested = Just(Value::Map(
                [
                    ("a".to_owned(), Value::Union(0, Box::new(Value::Null))),
                    ("b".to_owned(), Value::Union(1, Box::new(Value::Array(vec![])))),
                ]
                .into_iter()
                .collect(),
            ));
            let fixed = any::<[u8; 3]>().prop_map(|bytes| Value::Fixed(3, bytes.to_vec()));
            named(vec![
                ("extra", nested.boxed()),
                ("id", union(vec![null(), long(), int()]).boxed()),
                ("renamed", text("[a-z]{0,4}").boxed()),
                ("amount", float()),
                ("note", text("[a-z]{0,4}").boxed()),
                ("state", state(&["NEW", "LOST", "DONE"]).boxed()),
                ("place", named(vec![("z", fixed.boxed()), ("x", int())])),
            ])
        }
        _ => {
            let bytes = any::<Vec<u8>>().prop_map(Value::Bytes).boxed();
            let tag = union(vec![text("[a-z]{0,4}").boxed(), bytes]);
            let boolean = any::<bool>().prop_map(Value::Boolean).boxed();
            named(vec![
                ("id", long()),
                ("amount", long()),
                ("note", union(vec![text("[a-z]{0,4}").boxed(), null(), boolean]).boxed()),
                ("state", state(&["DONE"]).boxed()),
                ("tags", proptest::collection::vec(tag, 0..3).prop_map(Value::Array).boxed()),
            ])
        }
    }
}

proptest! {
    /// Records of all writers in one batch are read as the other implementation reads them; what it cannot read, we cannot.
    #[test]
    fn records_of_any_writer_become_rows_of_the_reader(
        datums in proptest::collection::vec((0..WRITERS.len()).prop_flat_map(|writer| (Just(writer), datum_of(writer))), 1..12),
    ) {
        let reader = WitnessSchema::parse_str(READER).unwrap();
        let writers: Vec<_> = WRITERS.iter().map(|writer| WitnessSchema::parse_str(writer).unwrap()).collect();
        let mut decoder = decoder_of(READER, &WRITERS);
        let mut expected = Vec::new();
        for (writer, value) in &datums {
            let bytes = witness_bytes(&writers[*writer], value);
            let resolved = witness_value(&writers[*writer], &reader, &bytes);
            let ours = decoder.decode(Some(&framed(*writer as u32, &bytes)));
            prop_assert_eq!(resolved.is_some(), ours.is_ok(), "{:?}: {:?} {:?}", value, resolved, ours);
            expected.extend(resolved.map(|value| witness_bytes(&reader, &value)));
        }
        let rows = batch(READER, finish(&mut decoder));
        prop_assert_eq!(encoded(given(READER), &rows), expected);
    }
}

#[test]
fn a_writer_that_cannot_be_read_spoils_its_own_records_only() {
    let other = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}"#;
    let mut decoder = decoder_of(READER, &[other, WRITERS[1]]);
    let good = framed(1, &[0, 14]);
    decoder.decode(Some(&good)).unwrap();
    let error = decoder.decode(Some(&framed(0, &[2, b'x']))).unwrap_err().to_string();
    assert!(
        error.contains("schema 0 cannot be read as the reader's: field 'id': a string for a long"),
        "{error}"
    );
    decoder.decode(Some(&good)).unwrap();
    assert_eq!(finish(&mut decoder)[0].as_primitive::<Int64Type>().values(), &[7, 7]);
}

#[test]
fn what_a_record_names_must_be_learned_and_missing_ids_are_asked_for_again() {
    let mut decoder = decoder_of(READER, &WRITERS);
    assert_eq!(decoder.unknown_schema(Some(&framed(0, &[]))), None);
    assert_eq!(decoder.unknown_schema(Some(&framed(9, &[]))), Some(SchemaId(9)));
    for bad in [&[][..], &[0], &[0, 0, 0, 0], &[1, 0, 0, 0, 9, 5]] {
        assert_eq!(decoder.unknown_schema(Some(bad)), None);
        let error = decoder.decode(Some(bad)).unwrap_err().to_string();
        assert!(error.contains("does not begin with a zero byte"), "{error}");
    }
    assert_eq!(decoder.unknown_schema(None), None);
    decoder.learn_schema(SchemaId(9), &WriterSchema::Missing("the registry does not have it".to_owned()));
    assert_eq!(decoder.unknown_schema(Some(&framed(9, &[]))), None);
    let error = decoder.decode(Some(&framed(9, &[]))).unwrap_err().to_string();
    assert_eq!(error, "no schema to read it with: schema 9: the registry does not have it");
    decoder.forget_missing_schemas();
    assert_eq!(decoder.unknown_schema(Some(&framed(9, &[]))), Some(SchemaId(9)));
    assert_eq!(decoder.unknown_schema(Some(&framed(0, &[]))), None);
}

#[test]
fn times_and_decimals_of_another_unit_are_not_read_as_if_they_were_ours() {
    let of = |logical: &str| {
        format!(r#"{{"type":"record","name":"R","fields":[{{"name":"t","type":{logical}}}]}}"#)
    };
    let long = |logical: &str| of(&format!(r#"{{"type":"long","logicalType":"{logical}"}}"#));
    let decimal = |scale: u8| {
        of(&format!(r#"{{"type":"bytes","logicalType":"decimal","precision":9,"scale":{scale}}}"#))
    };
    let reads = |writer: &str, reader: &str| {
        let (writer, reader) = (AvroSchema::parse(writer).unwrap(), AvroSchema::parse(reader).unwrap());
        plan::resolve(&writer, &reader).map(drop)
    };
    assert!(
        reads(&long("timestamp-millis"), &long("timestamp-micros")).unwrap_err().contains("TimestampMillis")
    );
    assert!(reads(&decimal(2), &decimal(3)).unwrap_err().contains("Decimal"));
    assert_eq!(reads(&decimal(2), &decimal(2)), Ok(()));
    assert_eq!(reads(&of("\"long\""), &long("timestamp-micros")), Ok(()));
    assert_eq!(reads(&long("timestamp-micros"), &of("\"long\"")), Ok(()));
    assert_eq!(reads(&of("\"int\""), &long("timestamp-millis")), Ok(()));
}

/// The other implementation does not look at aliases of fields.
#[test]
fn fields_and_records_are_found_by_their_aliases() {
    let reader = r#"{"type":"record","name":"New","aliases":["Old"],"fields":[
        {"name":"a","aliases":["b","c"],"type":"long","default":0},{"name":"c","aliases":["d"],"type":"long"}]}"#;
    let of = |field: &str| {
        format!(
            r#"{{"type":"record","name":"x.Old","fields":[{{"name":"{field}","type":"int"}},{{"name":"c","type":"int"}}]}}"#
        )
    };
    let writers = [of("b"), of("a"), of("z")];
    let mut decoder = decoder_of(reader, &writers.each_ref().map(String::as_str));
    for id in 0..2 {
        decoder.decode(Some(&framed(id, &[2, 4]))).unwrap();
    }
    let columns = finish(&mut decoder);
    assert_eq!(columns[0].as_primitive::<Int64Type>().values(), &[1, 1]);
    assert_eq!(columns[1].as_primitive::<Int64Type>().values(), &[2, 2]);
    // One field of a writer for two of the reader: which of them was meant?
    let error = decoder.decode(Some(&framed(2, &[2, 4]))).unwrap_err().to_string();
    assert!(error.contains("share 'c'"), "{error}");
}

/// The specification's own example; the other implementation takes the text's UTF-8.
#[test]
fn a_default_of_bytes_is_a_byte_for_each_character() {
    let schema = AvroSchema::parse("\"bytes\"").unwrap();
    let of = |text: &str| default::encode(&schema, schema.root(), &serde_json::Value::from(text));
    assert_eq!(of("\u{ff}\u{1}").unwrap(), [4, 0xff, 1]);
    assert!(of("\u{100}").is_err());
}

#[test]
fn ids_of_a_framed_output_stand_in_front() {
    let mut decoder = decoder_of(READER, &[WRITERS[1]]);
    decoder.decode(Some(&framed(0, &[0, 14]))).unwrap();
    let rows = batch(READER, finish(&mut decoder));
    let output = AvroOutput { schema_id: Some(SchemaId(0x0102_0304)), ..given(READER) };
    let datum = encoded(output, &rows).remove(0);
    assert_eq!(datum[..6], [0, 1, 2, 3, 4, 14]);
}
