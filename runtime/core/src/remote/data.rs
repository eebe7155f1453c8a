//! Rows between a task in front of the sinks and a sink in another process: one connection for each pair of the two.
//!
//! ```text
//!  channel ==> pass_on ==connection==> take_in ==> channel
//!     ^                                   |  ^        |
//!     +-------- credit: elements taken ---+--+--------+
//! ```
//!
//! What was passed on stays counted in the channel that it came from until the sink has taken it out of the other one, so
//! the channel's bounds in rows and bytes hold over both processes, and a slow sink makes the sources wait as it does
//! in one process. One connection for each pair: no pair waits behind another.

use std::future::poll_fn;
use std::io::Cursor;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::DataType;
use sharestream_base::planted::{Bug, is_planted};
use sharestream_base::{BoxIo, Clock};

use super::bytes::{ByteReader, ByteWriter, Malformed};
use super::frame::{DATA_BYTES_MAX, Frame, FrameReader, FrameWriter, GREETING_BYTES_MAX, framed};
use super::values::{read_barrier, read_error, write_barrier, write_error};
use crate::ErrorKind;
use crate::channel::{Passage, Receiver, Sender};
use crate::element::StreamElement;
use crate::error::{Error, Result};

/// Which channel a data connection is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    /// The subtask in front of the sinks.
    pub(super) upstream: u32,
    pub(super) sink: u32,
}

const HELLO: u8 = 129;
const ACCEPTED: u8 = 130;
const REFUSED: u8 = 131;
const ROWS: u8 = 132;
const REJECTED: u8 = 133;
const PARKED: u8 = 137;
const BARRIER: u8 = 134;
const END: u8 = 135;
const CREDIT: u8 = 136;

/// A connection whose pair is known to both sides.
pub(super) struct DataConnection {
    reader: FrameReader,
    writer: FrameWriter,
    attempt: u64,
}

impl DataConnection {
    /// Says which pair of which attempt the connection is for, and waits for the answer. Errors: `Abort`, the sinks are in
    /// another attempt; `Retry`, the connection broke.
    pub(super) async fn open(io: BoxIo, attempt: u64, pair: Pair) -> Result<Self> {
        let (mut reader, mut writer) = framed(io, DATA_BYTES_MAX);
        let mut hello = ByteWriter::new();
        hello.u32(pair.upstream).u32(pair.sink);
        writer.write(&Frame { kind: HELLO, attempt, payload: hello.into_bytes() }).await?;
        let Some(frame) = reader.next().await? else { return Err(ended()) };
        match frame.kind {
            ACCEPTED => Ok(DataConnection { reader, writer, attempt }),
            REFUSED => Err(read_error(&mut ByteReader::new(&frame.payload))?),
            other => Err(Malformed::new(format!("{other} is no answer to a data connection")).into()),
        }
    }

    /// Takes a connection that belongs to `attempt`. Errors: it does not (it was told so), or it broke.
    pub(super) async fn accept(io: BoxIo, attempt: u64) -> Result<(Self, Pair)> {
        let (mut reader, mut writer) = framed(io, DATA_BYTES_MAX);
        reader.allow(GREETING_BYTES_MAX);
        let Some(frame) = reader.next().await? else { return Err(ended()) };
        if frame.kind != HELLO {
            return Err(Malformed::new(format!("{} does not begin a data connection", frame.kind)).into());
        }
        if frame.attempt != attempt {
            let context =
                format!("rows of attempt {} are refused: the sinks are in attempt {attempt}", frame.attempt);
            let error = Error::new(ErrorKind::Abort, context);
            let mut payload = ByteWriter::new();
            write_error(&mut payload, &error);
            writer.write(&Frame { kind: REFUSED, attempt, payload: payload.into_bytes() }).await?;
            return Err(error);
        }
        let mut hello = ByteReader::new(&frame.payload);
        let pair = Pair { upstream: hello.u32()?, sink: hello.u32()? };
        hello.end()?;
        reader.allow(DATA_BYTES_MAX);
        writer.write(&Frame { kind: ACCEPTED, attempt, payload: Vec::new() }).await?;
        Ok((DataConnection { reader, writer, attempt }, pair))
    }

    /// Passes on what comes out of `receiver`, until the end is taken at the other side. Not cancel safe. Errors: the
    /// connection broke, or the other side contradicts itself.
    pub(super) async fn pass_on(self, mut receiver: Receiver, clock: &Clock) -> Result<()> {
        let DataConnection { mut reader, mut writer, attempt } = self;
        let passage = receiver.passage();
        let writing = async {
            loop {
                // Without an end the task in front of this one has failed, and says so itself.
                let Some(element) = poll_fn(|cx| receiver.poll_pass_on(cx)).await else {
                    return std::future::pending().await;
                };
                let is_end = matches!(element, StreamElement::End);
                writer.write(&element_frame(&element, attempt, clock)?).await?;
                if is_end {
                    return std::future::pending::<Result<()>>().await;
                }
            }
        };
        tokio::select! {
            biased;
            ended = credits(&mut reader, &passage) => ended,
            failed = writing => failed,
        }
    }

    /// Puts what comes into `sender`, until the end is taken there. Not cancel safe. Errors: the connection broke, or what
    /// came is not what it should be.
    pub(super) async fn take_in(self, mut sender: Sender, clock: &Clock) -> Result<()> {
        let DataConnection { mut reader, mut writer, attempt } = self;
        let taken = sender.taken();
        let mut total = None;
        let reading = async {
            let mut count: u64 = 0;
            loop {
                let frame = reader.next().await;
                let element = if is_planted(Bug::BrokenConnectionIsEnd) && !matches!(frame, Ok(Some(_))) {
                    StreamElement::End
                } else {
                    element_of(frame?.ok_or_else(ended)?, attempt, clock)?
                };
                count += 1;
                let is_end = matches!(element, StreamElement::End);
                if sender.send(element).await.is_err() {
                    // The sink has failed, and says so itself.
                    return std::future::pending().await;
                }
                if is_end {
                    return Ok::<u64, Error>(count);
                }
            }
        };
        tokio::pin!(reading);
        let mut told = 0;
        loop {
            tokio::select! {
                biased;
                now = taken.beyond(told) => {
                    told = now;
                    let payload = now.to_be_bytes().to_vec();
                    writer.write(&Frame { kind: CREDIT, attempt, payload }).await?;
                    if total == Some(told) {
                        return writer.shutdown().await;
                    }
                }
                count = &mut reading, if total.is_none() => {
                    let count = count?;
                    total = Some(count);
                    if told == count {
                        return writer.shutdown().await;
                    }
                }
            }
        }
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Retry, "the other process has closed the data connection")
}

/// Takes credits until the other side has taken the end and closed.
async fn credits(reader: &mut FrameReader, passage: &Passage) -> Result<()> {
    let mut taken = 0;
    loop {
        let Some(frame) = reader.next().await? else {
            return if passage.is_through() { Ok(()) } else { Err(ended()) };
        };
        if frame.kind != CREDIT {
            return Err(Malformed::new(format!("{} is no credit", frame.kind)).into());
        }
        let mut payload = ByteReader::new(&frame.payload);
        let total = payload.u64()?;
        payload.end()?;
        let more = total.checked_sub(taken).filter(|more| passage.taken(*more));
        if more.is_none() {
            return Err(Malformed::new(format!("credit {total} follows credit {taken}")).into());
        }
        taken = total;
    }
}

fn element_frame(element: &StreamElement, attempt: u64, clock: &Clock) -> Result<Frame> {
    let (kind, payload) = match element {
        StreamElement::Batch(rows) => (ROWS, encode(rows)?),
        StreamElement::Rejected(rows) => (REJECTED, encode(rows)?),
        StreamElement::Parked(rows) => (PARKED, encode(rows)?),
        StreamElement::Barrier(barrier) => {
            let mut writer = ByteWriter::new();
            write_barrier(&mut writer, *barrier, clock.now());
            (BARRIER, writer.into_bytes())
        }
        StreamElement::End => (END, Vec::new()),
    };
    Ok(Frame { kind, attempt, payload })
}

fn element_of(frame: Frame, attempt: u64, clock: &Clock) -> Result<StreamElement> {
    if frame.attempt != attempt {
        let context = format!("rows of attempt {} came in attempt {attempt}", frame.attempt);
        return Err(Error::new(ErrorKind::Abort, context));
    }
    match frame.kind {
        ROWS => Ok(StreamElement::Batch(decode(frame.payload)?)),
        REJECTED => Ok(StreamElement::Rejected(decode(frame.payload)?)),
        PARKED => Ok(StreamElement::Parked(decode(frame.payload)?)),
        BARRIER => {
            let mut reader = ByteReader::new(&frame.payload);
            let barrier = read_barrier(&mut reader, clock.now())?;
            reader.end()?;
            Ok(StreamElement::Barrier(barrier))
        }
        END => Ok(StreamElement::End),
        other => Err(Malformed::new(format!("{other} is no element of a stream")).into()),
    }
}

/// Rows as an Arrow IPC stream of their own: schema, dictionaries, one batch.
fn encode(rows: &RecordBatch) -> Result<Vec<u8>> {
    let failed = |error| Error::new(ErrorKind::Bug, "rows cannot be written as arrow ipc").with_source(error);
    // A view keeps the whole fetch buffer that many batches share; only what it shows is to cross.
    let columns = rows.columns().iter().map(compact).collect();
    let compacted = RecordBatch::try_new(rows.schema(), columns).map_err(failed)?;
    let mut writer = StreamWriter::try_new(Vec::new(), compacted.schema_ref()).map_err(failed)?;
    writer.write(&compacted).map_err(failed)?;
    writer.into_inner().map_err(failed)
}

fn compact(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        _ => column.clone(),
    }
}

fn decode(payload: Vec<u8>) -> Result<RecordBatch> {
    let malformed = |what: &str| Error::from(Malformed::new(what));
    let not_arrow = |error| malformed("rows are not arrow ipc").with_source(error);
    let mut reader = StreamReader::try_new(Cursor::new(payload), None).map_err(not_arrow)?;
    let rows = reader.next().ok_or_else(|| malformed("there is no batch in it"))?.map_err(not_arrow)?;
    if reader.next().is_some() {
        return Err(malformed("there is more than one batch in it"));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow_array::{BinaryViewArray, Int64Array};
    use arrow_schema::{Field, Schema};
    use sharestream_base::ids::CheckpointId;
    use sharestream_base::{OwnedTask, Spawner, TaskKind};

    use super::*;
    use crate::channel::{Bounds, channel};
    use crate::element::Barrier;

    fn rows(count: i64) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(0..count))]).unwrap()
    }

    const PAIR: Pair = Pair { upstream: 1, sink: 2 };

    /// Two channels with a connection between them, and the two tasks that serve it.
    async fn joined(bounds: Bounds) -> (Sender, Receiver, [OwnedTask<Result<()>>; 2]) {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (opened, accepted) = tokio::join!(
            DataConnection::open(Box::new(ours), 7, PAIR),
            DataConnection::accept(Box::new(theirs), 7)
        );
        let (accepted, pair) = accepted.unwrap();
        assert_eq!(pair, PAIR);
        let opened = opened.unwrap();
        let (front, passed) = channel(bounds);
        let (taking, back) = channel(bounds);
        let spawner = Spawner::system();
        let sending = OwnedTask::spawn(&spawner, "pass-on", TaskKind::Job, async move {
            opened.pass_on(passed, &Clock::system()).await
        });
        let receiving = OwnedTask::spawn(&spawner, "take-in", TaskKind::Job, async move {
            accepted.take_in(taking, &Clock::system()).await
        });
        (front, back, [sending, receiving])
    }

    async fn receive(receiver: &mut Receiver) -> Option<StreamElement> {
        poll_fn(|cx| receiver.poll_receive(cx)).await
    }

    #[tokio::test(start_paused = true)]
    async fn elements_arrive_in_order_and_both_sides_end() {
        let (mut front, mut back, tasks) = joined(Bounds { rows_max: 100, bytes_max: 1 << 20 }).await;
        let barrier = Barrier { checkpoint: CheckpointId(3), waits_until: None, watermark: None };
        front.send(StreamElement::Batch(rows(5))).await.unwrap();
        front.send(StreamElement::Rejected(rows(2))).await.unwrap();
        front.send(StreamElement::Parked(rows(3))).await.unwrap();
        front.send(StreamElement::Barrier(barrier)).await.unwrap();
        front.send(StreamElement::End).await.unwrap();
        assert!(matches!(receive(&mut back).await, Some(StreamElement::Batch(got)) if got == rows(5)));
        assert!(matches!(receive(&mut back).await, Some(StreamElement::Rejected(got)) if got == rows(2)));
        assert!(matches!(receive(&mut back).await, Some(StreamElement::Parked(got)) if got == rows(3)));
        assert!(matches!(receive(&mut back).await, Some(StreamElement::Barrier(got)) if got == barrier));
        assert!(matches!(receive(&mut back).await, Some(StreamElement::End)));
        for mut task in tasks {
            task.join().await.unwrap().unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_bounds_of_the_channel_hold_over_both_processes() {
        let (mut front, mut back, _tasks) = joined(Bounds { rows_max: 10, bytes_max: 1 << 20 }).await;
        front.send(StreamElement::Batch(rows(6))).await.unwrap();
        front.send(StreamElement::Batch(rows(4))).await.unwrap();
        let clock = Clock::system();
        let more = clock.timeout(Duration::from_secs(5), front.send(StreamElement::Batch(rows(1)))).await;
        assert!(more.is_err(), "ten rows are on their way and nobody has taken one");
        receive(&mut back).await.unwrap();
        front.send(StreamElement::Batch(rows(6))).await.unwrap();
        let more = clock.timeout(Duration::from_secs(5), front.send(StreamElement::Batch(rows(1)))).await;
        assert!(more.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_of_another_attempt_is_refused() {
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        let (opened, accepted) = tokio::join!(
            DataConnection::open(Box::new(ours), 6, PAIR),
            DataConnection::accept(Box::new(theirs), 7)
        );
        assert!(accepted.is_err());
        let error = opened.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Abort);
        assert!(error.to_string().contains("rows of attempt 6"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_is_gone_is_an_error_of_the_other() {
        for lost in 0..2 {
            let (mut front, _back, mut tasks) = joined(Bounds { rows_max: 10, bytes_max: 1 << 20 }).await;
            front.send(StreamElement::Batch(rows(6))).await.unwrap();
            tokio::task::yield_now().await;
            tasks[lost].abort();
            assert!(tasks[1 - lost].join().await.unwrap().unwrap().is_err(), "{lost}");
        }
    }

    #[test]
    fn views_cross_with_what_they_show_and_nothing_else() {
        let long = vec![7u8; 1 << 20];
        let column: ArrayRef =
            Arc::new(BinaryViewArray::from_iter_values([&long[..], b"a value that is long"]));
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::BinaryView, false)]));
        let batch = RecordBatch::try_new(schema, vec![column.slice(1, 1)]).unwrap();
        let bytes = encode(&batch).unwrap();
        assert!(bytes.len() < 4 << 10, "{}", bytes.len());
        assert_eq!(decode(bytes).unwrap(), batch);
        assert!(decode(b"not arrow".to_vec()).is_err());
    }
}
