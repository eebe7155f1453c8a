//! What a statement means: planned transforms on small batches.

mod fixtures;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_schema::{DataType, Field, Schema};
use fixtures::{batch, errors, offsets, plan, row, run, schema};
use sharestream_core::operator::OperatorFactory;
use sharestream_core::{ErrorKind, coordinates};
use sharestream_sql::SqlTransform;

fn flights() -> RecordBatch {
    batch(&[
        row("UA", 2, 1400.0, "1"),
        row("AA", 33, 1089.0, "x"),
        row("UA", None, 719.0, "3"),
        row("B6", 16, 0.0, "4"),
    ])
}

#[test]
fn where_keeps_rows_that_are_true_and_drops_false_and_null() {
    let output = run("SELECT carrier, dep_delay FROM source WHERE dep_delay > 15", flights());
    let rows = output.rows.unwrap();
    assert_eq!(offsets(Some(&rows)), [1, 3]);
    assert_eq!(rows.column(0).as_string::<i32>().value(1), "B6");
    assert!(output.rejected.is_none());
}

#[test]
fn hidden_columns_pass_through_whatever_is_selected() {
    let rows = run("SELECT 1 AS one FROM source WHERE carrier = 'UA'", flights()).rows.unwrap();
    assert_eq!(rows.num_columns(), 1 + coordinates::COLUMNS.len());
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[1, 1]);
    assert_eq!(offsets(Some(&rows)), [0, 2]);
    let values = rows.column_by_name(coordinates::VALUE).unwrap().as_binary_view();
    assert_eq!(values.value(1), b"a value longer than twelve bytes 2");
}

#[test]
fn a_star_means_the_users_columns() {
    let user_columns = |sql: &str| -> Vec<String> {
        let schema = plan(sql).schema();
        let user = &schema.fields()[..coordinates::user_column_count(&schema)];
        user.iter().map(|field| field.name().clone()).collect()
    };
    assert_eq!(
        user_columns("SELECT * FROM source"),
        ["carrier", "dep_delay", "distance", "text", "FlightNo"]
    );
    assert_eq!(user_columns("SELECT s.* FROM source AS s"), user_columns("SELECT * FROM source"));
    let except = ["carrier", "distance", "FlightNo"];
    assert_eq!(user_columns("SELECT * EXCLUDE (dep_delay, text) FROM source"), except);
    assert_eq!(user_columns("SELECT * EXCEPT (dep_delay, text) FROM source"), except);
    assert_eq!(user_columns("SELECT * EXCLUDE (text, _topic) FROM source").len(), 4);
    assert_eq!(user_columns("SELECT *, dep_delay * 2 AS twice FROM source").last().unwrap(), "twice");
}

#[test]
fn a_star_without_where_shares_the_columns() {
    let input = flights();
    let rows = run("SELECT * FROM source", input.clone()).rows.unwrap();
    for (a, b) in rows.columns().iter().zip(input.columns()) {
        assert!(Arc::ptr_eq(a, b), "nothing is copied");
    }
}

#[test]
fn hidden_columns_can_be_used_by_name() {
    let sql = "SELECT _partition AS p, _topic AS t FROM source WHERE _offset >= 2 AND _topic = 'flights'";
    let rows = run(sql, flights()).rows.unwrap();
    assert_eq!(rows.column(0).as_primitive::<Int32Type>().values(), &[3, 3]);
    assert_eq!(offsets(Some(&rows)), [2, 3]);
}

#[test]
fn expressions_functions_case_and_cast_are_computed() {
    let sql = "SELECT upper(carrier) || '-' || substr(text, 1, 1) AS label, \
               CASE WHEN dep_delay IS NULL THEN -1 WHEN dep_delay > 15 THEN 1 ELSE 0 END AS late, \
               CAST(distance AS DOUBLE) / 2 AS half, \
               coalesce(dep_delay, 0) + 1, \
               \"FlightNo\" FROM source";
    let rows = run(sql, flights()).rows.unwrap();
    assert_eq!(rows.column(0).as_string::<i32>().value(0), "UA-1");
    assert_eq!(rows.column(1).as_primitive::<Int64Type>().values(), &[0, 1, -1, 1]);
    assert_eq!(rows.column(2).as_primitive::<Float64Type>().values(), &[700.0, 544.5, 359.5, 0.0]);
    assert_eq!(rows.schema().field(3).name(), "coalesce(dep_delay, 0) + 1", "named by its text");
    assert_eq!(rows.schema().field(4).name(), "FlightNo");
}

#[test]
fn special_syntax_is_planned() {
    for sql in [
        "SELECT extract(hour FROM _timestamp) AS h FROM source",
        "SELECT position('A' IN carrier) AS p, substring(carrier FROM 1 FOR 1) AS s, trim(text) AS t FROM source",
        "SELECT * FROM source WHERE carrier LIKE 'U%' AND dep_delay BETWEEN 1 AND 5 OR carrier IN ('AA', 'B6')",
        "SELECT regexp_replace(carrier, '[A-Z]', 'x') AS r FROM source WHERE carrier ~ '^U'",
        "SELECT date_trunc('day', _timestamp) AS day, to_char(_timestamp, '%Y') AS year FROM source",
        "select S.CARRIER from Source as S where S.dep_delay is not null",
        "SELECT ALL carrier FROM source;",
        "(SELECT carrier FROM source)",
        "SELECT try_cast(text AS INT) AS n FROM source",
    ] {
        run(sql, flights());
    }
}

#[test]
fn no_rows_left_is_no_batch() {
    for sql in ["SELECT * FROM source WHERE dep_delay > 1000", "SELECT * FROM source WHERE false"] {
        let output = run(sql, flights());
        assert!(output.rows.is_none() && output.rejected.is_none());
    }
    assert!(run("SELECT * FROM source", batch(&[])).rows.is_none());
    assert_eq!(offsets(run("SELECT * FROM source WHERE true", flights()).rows.as_ref()), [0, 1, 2, 3]);
}

#[test]
fn a_row_that_fails_is_rejected_alone_with_the_column_named() {
    let sql = "SELECT carrier, CAST(text AS INT) AS number FROM source";
    let output = run(sql, flights());
    let rows = output.rows.unwrap();
    assert_eq!(offsets(Some(&rows)), [0, 2, 3]);
    assert_eq!(rows.column(1).as_primitive::<Int32Type>().values(), &[1, 3, 4]);
    assert_eq!(offsets(output.rejected.as_ref()), [1]);
    let [error] = errors(output.rejected.as_ref()).try_into().unwrap();
    assert!(error.starts_with("sql column 'number': "), "{error}");
    assert!(error.contains("Cannot cast string 'x' to value of Int32 type"), "{error}");
}

#[test]
fn a_row_that_fails_in_where_is_rejected_and_the_rest_is_filtered() {
    let output = run("SELECT carrier FROM source WHERE CAST(text AS INT) > 1", flights());
    assert_eq!(offsets(output.rows.as_ref()), [2, 3]);
    assert_eq!(offsets(output.rejected.as_ref()), [1]);
    assert!(errors(output.rejected.as_ref())[0].starts_with("sql WHERE: "));
}

#[test]
fn a_division_by_zero_rejects_its_row() {
    let sql = "SELECT 100 / CAST(distance AS INT) AS x FROM source WHERE dep_delay > 1";
    let output = run(sql, flights());
    assert_eq!((offsets(output.rows.as_ref()), offsets(output.rejected.as_ref())), (vec![0, 1], vec![3]));
    assert!(errors(output.rejected.as_ref())[0].contains("ivide by zero"));
}

#[test]
fn a_guarded_division_rejects_nothing() {
    let sql = "SELECT carrier FROM source WHERE distance <> 0 AND 1000 / CAST(distance AS INT) > 0";
    let output = run(sql, flights());
    assert_eq!(offsets(output.rows.as_ref()), [2]);
    assert!(output.rejected.is_none(), "{:?}", errors(output.rejected.as_ref()));
}

#[test]
fn every_row_can_fail() {
    let output = run("SELECT CAST('x' || text AS INT) AS n FROM source", flights());
    assert!(output.rows.is_none());
    assert_eq!(offsets(output.rejected.as_ref()), [0, 1, 2, 3]);
}

#[test]
fn another_input_schema_is_refused_when_the_graph_is_built() {
    let transform = plan("SELECT carrier FROM source");
    assert!(transform.output_schema(schema()).is_ok());
    let other =
        coordinates::with_coordinates(&Schema::new(vec![Field::new("carrier", DataType::Utf8, true)]));
    let error = transform.output_schema(other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let bare = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, true)]));
    let error = SqlTransform::plan("SELECT a FROM source", bare).unwrap_err();
    assert!(error.message.contains("hidden coordinate columns"), "{error}");
}
