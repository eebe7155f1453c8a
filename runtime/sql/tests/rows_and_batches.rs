//! The result of a row does not depend on the rows around it.

#![allow(clippy::unwrap_used, reason = "builders of a test, which the lint does not see as such")]

mod fixtures;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use fixtures::{Row, batch, plan};
use proptest::prelude::*;
use sharestream_core::coordinates;
use sharestream_core::operator::{OperatorFactory, OperatorOutput};

/// Statements with every way to fail: in WHERE, in the list, in both, behind AND, OR and CASE.
const STATEMENTS: &[&str] = &[
    "SELECT * FROM source",
    "SELECT carrier, dep_delay FROM source WHERE dep_delay > 15",
    "SELECT CAST(text AS INT) AS n FROM source",
    "SELECT carrier FROM source WHERE CAST(text AS INT) > 0",
    "SELECT 100 / dep_delay AS x, CAST(text AS INT) AS n FROM source WHERE dep_delay < 20 OR carrier = 'UA'",
    "SELECT carrier FROM source WHERE dep_delay <> 0 AND 100 / dep_delay > 3",
    "SELECT carrier FROM source WHERE dep_delay = 0 OR 100 % dep_delay = 0",
    "SELECT CASE WHEN dep_delay = 0 THEN 0 ELSE 100 / dep_delay END AS x FROM source",
    "SELECT coalesce(dep_delay, CAST(text AS INT)) AS x FROM source",
    "SELECT upper(text) AS t, distance * 2 AS d, length(carrier) AS l FROM source WHERE distance IS NOT NULL",
    "SELECT try_cast(text AS INT) AS n, _offset AS o FROM source WHERE carrier IN ('UA', 'AA')",
    "SELECT CAST(distance AS INT) AS d, text LIKE '%1%' AS one FROM source WHERE carrier LIKE 'U%' OR text ~ '^[0-9]'",
];

fn any_row() -> impl Strategy<Value = Row> {
    (
        prop::option::of(prop::sample::select(vec!["UA", "AA", "B6"])),
        prop::option::of(prop_oneof![3 => -3..40i32, 1 => Just(0)]),
        prop::option::of(prop_oneof![Just(0.0), Just(1e300), -1e3..1e3f64]),
        prop::option::of(prop_oneof![
            3 => (0..100i32).prop_map(|n| n.to_string()),
            1 => prop::sample::select(vec!["x", "", "1.5", "99999999999"]).prop_map(str::to_owned)
        ]),
    )
        .prop_map(|(carrier, dep_delay, distance, text)| Row { carrier, dep_delay, distance, text })
}

fn joined(batches: Vec<Option<RecordBatch>>) -> Option<RecordBatch> {
    let batches: Vec<RecordBatch> = batches.into_iter().flatten().collect();
    batches.first().map(|first| concat_batches(&first.schema(), &batches).unwrap())
}

/// Columns with values; rejected rows of WHERE come before those of the list, so they are compared by offset.
fn in_offset_order(batch: Option<RecordBatch>) -> Option<RecordBatch> {
    let batch = batch?;
    let offsets = fixtures::offsets(Some(&batch));
    let mut order: Vec<usize> = (0..offsets.len()).collect();
    order.sort_by_key(|index| offsets[*index]);
    joined(order.into_iter().map(|index| Some(batch.slice(index, 1))).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_batch_gives_what_its_rows_give_alone(
        rows in proptest::collection::vec(any_row(), 1..40), statement in 0..STATEMENTS.len()
    ) {
        let sql = STATEMENTS[statement];
        let input = batch(&rows);
        let mut operator = plan(sql).create(0).unwrap();
        let whole = operator.process(input.clone()).unwrap();
        let alone: Vec<OperatorOutput> =
            (0..rows.len()).map(|index| operator.process(input.slice(index, 1)).unwrap()).collect();
        let (kept, rejected): (Vec<_>, Vec<_>) =
            alone.into_iter().map(|output| (output.rows, output.rejected)).unzip();
        prop_assert_eq!(whole.rows, joined(kept), "{}", sql);
        prop_assert_eq!(in_offset_order(whole.rejected), joined(rejected), "{}", sql);
    }
}

#[test]
fn no_row_is_in_two_outputs() {
    let rows: Vec<Row> =
        (0..200).map(|n| fixtures::row("UA", n % 7 - 3, 1.0, if n % 5 == 0 { "x" } else { "1" })).collect();
    let sql = "SELECT CAST(text AS INT) AS n FROM source WHERE 10 / dep_delay > 0";
    let output = plan(sql).create(0).unwrap().process(batch(&rows)).unwrap();
    let mut all = fixtures::offsets(output.rows.as_ref());
    all.extend(fixtures::offsets(output.rejected.as_ref()));
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
    let rejected = output.rejected.unwrap();
    assert_eq!(rejected.schema(), coordinates::rejected_schema());
    let kinds = coordinates::reject_kinds(&rejected).unwrap();
    assert!(kinds.iter().all(|kind| *kind == coordinates::RejectKind::Transform), "{kinds:?}");
}
