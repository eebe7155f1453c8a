//! What a row costs. Meaningful in release builds only:
//! `cargo test --release -p sharestream-sql --test cost -- --ignored --nocapture`

#![allow(clippy::unwrap_used, reason = "builders of a test, which the lint does not see as such")]

mod fixtures;

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use sharestream_base::Clock;
use sharestream_core::coordinates;
use sharestream_core::operator::OperatorFactory;
use sharestream_sql::SqlTransform;

const ROW_COUNT: usize = 8192;
const ROUND_COUNT: u32 = 200;
const TARGET_NS: f64 = 60.0;

/// The 19 columns of the flights, four of them text.
fn flights() -> RecordBatch {
    const TEXT: [&str; 4] = ["carrier", "tailnum", "origin", "dest"];
    const NUMBERS: [&str; 15] = [
        "dep_delay",
        "year",
        "month",
        "day",
        "dep_time",
        "sched_dep_time",
        "arr_time",
        "sched_arr_time",
        "arr_delay",
        "flight",
        "air_time",
        "distance",
        "hour",
        "minute",
        "time_hour",
    ];
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for name in NUMBERS {
        fields.push(Field::new(name, DataType::Int32, true));
        // One row in four is late by more than a quarter of an hour, in no order.
        let delay = |row: usize| i32::try_from(row.wrapping_mul(2_654_435_761) % 80).unwrap() - 44;
        columns.push(Arc::new((0..ROW_COUNT).map(|row| Some(delay(row))).collect::<Int32Array>()));
    }
    for name in TEXT {
        fields.push(Field::new(name, DataType::Utf8, true));
        columns.push(Arc::new(
            (0..ROW_COUNT).map(|row| Some(["UA", "N14228", "EWR"][row % 3])).collect::<StringArray>(),
        ));
    }
    columns.extend(fixtures::hidden(ROW_COUNT));
    RecordBatch::try_new(coordinates::with_coordinates(&Schema::new(fields)), columns).unwrap()
}

#[test]
#[ignore = "a measurement, for release builds"]
fn a_filter_with_six_columns_costs_at_most_60_ns_a_row() {
    let clock = Clock::system();
    let input = flights();
    let mut over = Vec::new();
    for (sql, target) in [
        (
            "SELECT carrier, flight, origin, dest, dep_delay, distance FROM source WHERE dep_delay > 15",
            Some(TARGET_NS),
        ),
        ("SELECT * FROM source WHERE dep_delay > 15", None),
        ("SELECT * FROM source", None),
        (
            "SELECT carrier || '-' || dest AS route, dep_delay * 60 AS seconds FROM source WHERE dep_delay > 15",
            None,
        ),
        ("SELECT carrier FROM source WHERE 1000 / (dep_delay + 44) > 15", None),
    ] {
        let started = clock.now();
        let transform = SqlTransform::plan(sql, input.schema()).unwrap();
        let planned = clock.now().duration_since(started);
        let mut operator = transform.create(0).unwrap();
        let kept = operator.process(input.clone()).unwrap().rows.map_or(0, |rows| rows.num_rows());
        let started = clock.now();
        for _ in 0..ROUND_COUNT {
            operator.process(input.clone()).unwrap();
        }
        let rows = f64::from(ROUND_COUNT) * ROW_COUNT as f64;
        let ns = clock.now().duration_since(started).as_nanos() as f64 / rows;
        println!("{ns:7.1} ns/row, planned in {planned:?}, {kept} of {ROW_COUNT} kept: {sql}");
        if target.is_some_and(|target| ns > target) {
            over.push(sql);
        }
    }
    assert!(over.is_empty(), "over target: {over:?}");
}
