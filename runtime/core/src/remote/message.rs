//! What goes over a control connection: commands down, events up. One kind of frame for each message; the table in
//! `docs/processes.md` lists them, and a fixture holds the bytes of version 1.

use sharestream_base::Instant;
use sharestream_base::ids::CheckpointId;

use super::Role;
use super::bytes::{ByteReader, ByteWriter, Malformed};
use super::frame::Frame;
use super::gauges::{GaugesShown, read_gauges, write_gauges};
use super::values::{
    checkpoint, read_barrier, read_decisions, read_error, read_operator_report, read_sink_report,
    read_source_report, write_barrier, write_decisions, write_error, write_operator_report,
    write_sink_report, write_source_report,
};
use crate::error::Error;
use crate::task::context::TaskEvent;
use crate::task::source::SourceCommand;

/// What a worker says of itself, first of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) role: Role,
    pub(crate) job: String,
    pub(crate) instance: String,
    /// What the job is: the same text in all three, or they run different jobs.
    pub(crate) definition: String,
    /// For people.
    pub(crate) process: String,
    /// Where it takes rows: sinks only.
    pub(crate) data_address: Option<String>,
}

/// What a worker needs to connect its part of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) first: CheckpointId,
    /// Who owns the job in its checkpoint store: job epoch and name.
    pub(crate) owner: Option<(u64, String)>,
    /// The manifest that state is restored from, as stored.
    pub(crate) manifest: Option<Vec<u8>>,
    /// What the connector's part here must know.
    pub(crate) opening: Vec<u8>,
    /// Where the sinks take rows: for sources.
    pub(crate) data_address: Option<String>,
}

/// Tasks that a worker has connected: coordinator and worker must count the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) sources: u32,
    pub(crate) operators: u32,
    pub(crate) sinks: u32,
}

/// From the coordinator to a worker.
#[derive(Debug)]
pub(crate) enum ToWorker {
    Welcome,
    /// Not with us: it says why, and whether to come again.
    Refused(Error),
    Connect(Assignment),
    Start,
    Command {
        subtask: u32,
        command: SourceCommand,
    },
    Opened(CheckpointId),
    BarrierSent(CheckpointId),
    Connector(Vec<u8>),
    /// The attempt is over: wind down.
    Cancel,
    Ping,
    /// The job has ended; so may the worker.
    JobEnded,
}

/// From a worker to the coordinator.
#[derive(Debug)]
pub(crate) enum ToCoordinator {
    Hello(Hello),
    Connected(Shape),
    /// The part could not be connected or started.
    Failed(Error),
    Event(TaskEvent),
    Gauges(GaugesShown),
    Connector(Vec<u8>),
    /// Every task of the attempt has ended.
    TasksEnded,
    Ping,
}

fn frame(kind: u8, attempt: u64, write: impl FnOnce(&mut ByteWriter)) -> Frame {
    let mut writer = ByteWriter::new();
    write(&mut writer);
    Frame { kind, attempt, payload: writer.into_bytes() }
}

impl ToWorker {
    /// The frame of this message; `now` is what moments are told from.
    pub(crate) fn to_frame(&self, attempt: u64, now: Instant) -> Frame {
        match self {
            ToWorker::Welcome => frame(1, attempt, |_| {}),
            ToWorker::Refused(error) => frame(2, attempt, |writer| write_error(writer, error)),
            ToWorker::Connect(assignment) => frame(3, attempt, |writer| {
                writer.u64(assignment.first.0);
                writer.option(assignment.owner.as_ref(), |writer, (epoch, by)| {
                    writer.u64(*epoch).text(by);
                });
                writer.option(assignment.manifest.as_ref(), |writer, manifest| {
                    writer.bytes(manifest);
                });
                writer.bytes(&assignment.opening);
                write_address(writer, assignment.data_address.as_ref());
            }),
            ToWorker::Start => frame(4, attempt, |_| {}),
            ToWorker::Command { subtask, command } => frame(5, attempt, |writer| {
                writer.u32(*subtask);
                write_command(writer, command, now);
            }),
            ToWorker::Opened(checkpoint) => frame(6, attempt, |writer| {
                writer.u64(checkpoint.0);
            }),
            ToWorker::BarrierSent(checkpoint) => frame(7, attempt, |writer| {
                writer.u64(checkpoint.0);
            }),
            ToWorker::Connector(bytes) => Frame { kind: 8, attempt, payload: bytes.clone() },
            ToWorker::Cancel => frame(9, attempt, |_| {}),
            ToWorker::Ping => frame(10, attempt, |_| {}),
            ToWorker::JobEnded => frame(11, attempt, |_| {}),
        }
    }

    /// Reads what [`ToWorker::to_frame`] wrote.
    pub(crate) fn of_frame(frame: Frame, now: Instant) -> Result<Self, Malformed> {
        let mut reader = ByteReader::new(&frame.payload);
        let message = match frame.kind {
            1 => ToWorker::Welcome,
            2 => ToWorker::Refused(read_error(&mut reader)?),
            3 => ToWorker::Connect(Assignment {
                first: checkpoint(&mut reader)?,
                owner: reader.option(|reader| Ok((reader.u64()?, reader.text()?.to_owned())))?,
                manifest: reader.option(|reader| Ok(reader.bytes()?.to_vec()))?,
                opening: reader.bytes()?.to_vec(),
                data_address: read_address(&mut reader)?,
            }),
            4 => ToWorker::Start,
            5 => {
                let subtask = reader.u32()?;
                ToWorker::Command { subtask, command: read_command(&mut reader, now)? }
            }
            6 => ToWorker::Opened(checkpoint(&mut reader)?),
            7 => ToWorker::BarrierSent(checkpoint(&mut reader)?),
            8 => return Ok(ToWorker::Connector(frame.payload)),
            9 => ToWorker::Cancel,
            10 => ToWorker::Ping,
            11 => ToWorker::JobEnded,
            other => return Err(unknown(other)),
        };
        reader.end()?;
        Ok(message)
    }
}

impl ToCoordinator {
    /// The frame of this message; `now` is what moments are told from.
    pub(crate) fn to_frame(&self, attempt: u64, now: Instant) -> Frame {
        match self {
            ToCoordinator::Hello(hello) => frame(65, attempt, |writer| {
                writer.u8(hello.role.code()).text(&hello.job).text(&hello.instance);
                writer.text(&hello.definition).text(&hello.process);
                write_address(writer, hello.data_address.as_ref());
            }),
            ToCoordinator::Connected(shape) => frame(66, attempt, |writer| {
                writer.u32(shape.sources).u32(shape.operators).u32(shape.sinks);
            }),
            ToCoordinator::Failed(error) => frame(67, attempt, |writer| write_error(writer, error)),
            ToCoordinator::Event(event) => frame(68, attempt, |writer| write_event(writer, event)),
            ToCoordinator::Gauges(gauges) => frame(69, attempt, |writer| write_gauges(writer, gauges, now)),
            ToCoordinator::Connector(bytes) => Frame { kind: 70, attempt, payload: bytes.clone() },
            ToCoordinator::TasksEnded => frame(71, attempt, |_| {}),
            ToCoordinator::Ping => frame(72, attempt, |_| {}),
        }
    }

    /// Reads what [`ToCoordinator::to_frame`] wrote.
    pub(crate) fn of_frame(frame: Frame, now: Instant) -> Result<Self, Malformed> {
        let mut reader = ByteReader::new(&frame.payload);
        let message = match frame.kind {
            65 => ToCoordinator::Hello(Hello {
                role: Role::of_code(reader.u8()?)?,
                job: reader.text()?.to_owned(),
                instance: reader.text()?.to_owned(),
                definition: reader.text()?.to_owned(),
                process: reader.text()?.to_owned(),
                data_address: read_address(&mut reader)?,
            }),
            66 => ToCoordinator::Connected(Shape {
                sources: reader.u32()?,
                operators: reader.u32()?,
                sinks: reader.u32()?,
            }),
            67 => ToCoordinator::Failed(read_error(&mut reader)?),
            68 => ToCoordinator::Event(read_event(&mut reader)?),
            69 => ToCoordinator::Gauges(read_gauges(&mut reader, now)?),
            70 => return Ok(ToCoordinator::Connector(frame.payload)),
            71 => ToCoordinator::TasksEnded,
            72 => ToCoordinator::Ping,
            other => return Err(unknown(other)),
        };
        reader.end()?;
        Ok(message)
    }
}

fn unknown(kind: u8) -> Malformed {
    Malformed::new(format!("{kind} is no kind of message"))
}

fn write_address(writer: &mut ByteWriter, address: Option<&String>) {
    writer.option(address, |writer, address| {
        writer.text(address);
    });
}

fn read_address(reader: &mut ByteReader<'_>) -> Result<Option<String>, Malformed> {
    reader.option(|reader| Ok(reader.text()?.to_owned()))
}

fn write_command(writer: &mut ByteWriter, command: &SourceCommand, now: Instant) {
    match command {
        SourceCommand::Barrier(barrier) => write_barrier(writer.u8(1), *barrier, now),
        SourceCommand::Deferred(checkpoint, offsets) => {
            write_decisions(writer.u8(2).u64(checkpoint.0), offsets);
        }
        SourceCommand::Committed(checkpoint) => {
            writer.u8(3).u64(checkpoint.0);
        }
        SourceCommand::StopAcquiring => {
            writer.u8(4);
        }
        SourceCommand::Close => {
            writer.u8(5);
        }
        SourceCommand::GiveBack(checkpoint, offsets) => {
            write_decisions(writer.u8(6).u64(checkpoint.0), offsets);
        }
    }
}

fn read_command(reader: &mut ByteReader<'_>, now: Instant) -> Result<SourceCommand, Malformed> {
    match reader.u8()? {
        1 => Ok(SourceCommand::Barrier(read_barrier(reader, now)?)),
        2 => {
            let checkpoint = checkpoint(reader)?;
            Ok(SourceCommand::Deferred(checkpoint, read_decisions(reader)?.into()))
        }
        3 => Ok(SourceCommand::Committed(checkpoint(reader)?)),
        4 => Ok(SourceCommand::StopAcquiring),
        5 => Ok(SourceCommand::Close),
        6 => {
            let checkpoint = checkpoint(reader)?;
            Ok(SourceCommand::GiveBack(checkpoint, read_decisions(reader)?.into()))
        }
        other => Err(Malformed::new(format!("{other} is no command"))),
    }
}

fn number(subtask: usize) -> u32 {
    u32::try_from(subtask).unwrap_or(u32::MAX)
}

fn write_event(writer: &mut ByteWriter, event: &TaskEvent) {
    match event {
        TaskEvent::SourceAcked { subtask, checkpoint, report } => {
            write_source_report(writer.u8(1).u32(number(*subtask)).u64(checkpoint.0), report);
        }
        TaskEvent::SourceStopped { subtask } => {
            writer.u8(2).u32(number(*subtask));
        }
        TaskEvent::OperatorAcked { subtask, checkpoint, report } => {
            write_operator_report(writer.u8(3).u32(number(*subtask)).u64(checkpoint.0), report);
        }
        TaskEvent::SinkAcked { subtask, checkpoint, report } => {
            write_sink_report(writer.u8(4).u32(number(*subtask)).u64(checkpoint.0), report);
        }
        TaskEvent::Failed { task, error } => write_error(writer.u8(5).text(task), error),
    }
}

fn read_event(reader: &mut ByteReader<'_>) -> Result<TaskEvent, Malformed> {
    let kind = reader.u8()?;
    if kind == 5 {
        let task = reader.text()?.to_owned();
        return Ok(TaskEvent::Failed { task, error: read_error(reader)? });
    }
    let subtask = reader.u32()? as usize;
    if kind == 2 {
        return Ok(TaskEvent::SourceStopped { subtask });
    }
    let checkpoint = checkpoint(reader)?;
    match kind {
        1 => Ok(TaskEvent::SourceAcked { subtask, checkpoint, report: read_source_report(reader)? }),
        3 => Ok(TaskEvent::OperatorAcked { subtask, checkpoint, report: read_operator_report(reader)? }),
        4 => Ok(TaskEvent::SinkAcked { subtask, checkpoint, report: read_sink_report(reader)? }),
        other => Err(Malformed::new(format!("{other} is no event"))),
    }
}
