//! Parts of state as Arrow IPC streams.

use std::io::Cursor;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use bytes::Bytes;

use crate::ErrorKind;
use crate::error::{Error, Result};

/// The stored bytes of `rows`.
pub(super) fn encode(rows: &RecordBatch) -> Result<Bytes> {
    let failed =
        |error| Error::new(ErrorKind::Bug, "state cannot be written as arrow ipc").with_source(error);
    let mut writer = StreamWriter::try_new(Vec::new(), rows.schema_ref()).map_err(failed)?;
    writer.write(rows).map_err(failed)?;
    writer.into_inner().map(Bytes::from).map_err(failed)
}

/// Reads what [`encode`] wrote; `name` is for errors. The bytes have passed their hash. Errors: `Corrupt`.
pub(super) fn decode(name: &str, bytes: Bytes) -> Result<Vec<RecordBatch>> {
    let corrupt = |error| {
        Error::new(ErrorKind::Corrupt, format!("state part {name} is not arrow ipc")).with_source(error)
    };
    let reader = StreamReader::try_new(Cursor::new(bytes), None).map_err(corrupt)?;
    reader.collect::<std::result::Result<Vec<_>, _>>().map_err(corrupt)
}
