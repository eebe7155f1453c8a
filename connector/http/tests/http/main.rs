//! Calls against a server that does what servers do: it is slow, it breaks off, it asks for pauses, it sends too much.
#![allow(clippy::unwrap_used, reason = "tests")]

mod failures;
mod requests;
mod responses;
mod secrets;
mod server;

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryViewArray, DictionaryArray, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use sharestream_base::Clock;
use sharestream_core::async_map::{AsyncFunction, AsyncOutcome, AsyncRow, CallError};
use sharestream_core::coordinates;
use sharestream_http::{HttpFunction, HttpSettings};

/// Columns `id` and `name`.
fn schema() -> SchemaRef {
    let user =
        Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)]);
    coordinates::with_coordinates(&user)
}

/// One row, at offset `id` of partition 3.
fn row(id: i64, name: Option<&str>) -> AsyncRow {
    let dictionary = |text: &str| -> ArrayRef {
        let values = Arc::new(StringArray::from(vec![text]));
        Arc::new(DictionaryArray::new(Int16Array::from(vec![0]), values))
    };
    let bytes = |bytes: Option<&[u8]>| -> ArrayRef { Arc::new(BinaryViewArray::from(vec![bytes])) };
    let value = format!("{id};{}", name.unwrap_or_default());
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![id])),
        Arc::new(StringArray::from(vec![name])),
        dictionary("orders"),
        dictionary("AAAAAAAAAAAAAAAAAAAAAQ"),
        Arc::new(Int32Array::from(vec![3])),
        Arc::new(Int64Array::from(vec![id])),
        Arc::new(Int32Array::from(vec![0])),
        Arc::new(TimestampMillisecondArray::from(vec![0]).with_timezone("UTC")),
        Arc::new(Int16Array::from(vec![1])),
        bytes(None),
        bytes(Some(value.as_bytes())),
        bytes(None),
        Arc::new(StringArray::new_null(1)),
    ];
    AsyncRow::new(Arc::new(RecordBatch::try_new(schema(), columns).unwrap()), 0)
}

async fn connect(settings: HttpSettings) -> HttpFunction {
    HttpFunction::connect(settings, &schema(), Some("cluster-1"), Clock::system()).await.unwrap()
}

/// The columns that a call gave.
async fn columns(function: &HttpFunction, row: AsyncRow) -> Result<Vec<ArrayRef>, CallError> {
    match function.call(row).await? {
        AsyncOutcome::Columns(columns) => Ok(columns),
        other => panic!("an HTTP call gives columns: {other:?}"),
    }
}
