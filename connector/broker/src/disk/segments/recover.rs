//! Reads the segments of one partition when the broker starts, and cuts what a crash tore off.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use sharestream_base::ErrorKind;
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_wire::records::RawBatch;
use tracing::warn;

use super::super::frame::{self, FileKind, Frame, Reader, Unreadable};
use super::super::store::{Disk, unusable};
use super::{Active, BATCH, COMPACTED, COVERS_NOTHING, Closed, HEAD, Head, LOG_START, PartitionFiles};
use crate::error::{Error, Result};
use crate::log::TransactionVersion;

/// What the segments say, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SegmentEvent {
    /// A segment begins; what came before is known to be as the head says.
    Head(Head),
    /// A batch; the version is that of its transaction.
    Batch(RawBatch, TransactionVersion),
    /// The log starts here now.
    LogStart(Offset),
    /// What came before is not part of the log any more: some of it was removed already.
    Forget,
    /// Everything below was read: compaction may have dropped the last records.
    End(Offset),
}

struct Segment {
    base: Offset,
    end: Offset,
    bytes: u64,
}

impl PartitionFiles {
    /// Reads all segments into `take`. `clean`: the broker before ended in good order, so that nothing may be torn.
    ///
    /// Errors: Corrupt (damage that no crash explains), InvalidInput (a newer format, files that cannot be used).
    pub(crate) fn recover(
        disk: &Arc<Disk>,
        topic: TopicId,
        partition: PartitionIndex,
        clean: bool,
        mut take: impl FnMut(SegmentEvent) -> Result<()>,
    ) -> Result<PartitionFiles> {
        let mut files = PartitionFiles::new(disk, topic, partition);
        let unusable = |source| unusable(disk.files(), source);
        let mut bases = Vec::new();
        for name in disk.files().list(&files.folder).map_err(unusable)? {
            match name.rsplit_once('.') {
                Some((base, "log")) => bases.extend(base.parse().ok().map(Offset)),
                Some((_, COMPACTED)) => {
                    disk.files().remove(&files.folder.join(&name)).map_err(unusable)?;
                }
                Some(_) | None => {}
            }
        }
        let mut found: VecDeque<Segment> = VecDeque::new();
        let (mut log_start, mut hole_before) = (Offset(0), None);
        let mut leftovers: Vec<PathBuf> = Vec::new();
        for (place, base) in bases.iter().copied().enumerate() {
            let end = found.back().map(|last| last.end);
            let path = files.segment(base);
            if end.is_some_and(|end| base < end) {
                // What a compacted segment stands for, left by a crash before it was removed.
                disk.files().remove(&path).map_err(unusable)?;
                continue;
            }
            if end.is_some_and(|end| end != base) {
                // Right only if everything below was deleted; whether it was is known at the end.
                hole_before = Some(base);
                leftovers.extend(found.drain(..).map(|gone| files.segment(gone.base)));
                take(SegmentEvent::Forget)?;
            }
            let may_be_torn = place + 1 == bases.len() && !clean;
            let mut note_start = |event: SegmentEvent| {
                match &event {
                    SegmentEvent::Head(head) => log_start = log_start.max(head.log_start),
                    SegmentEvent::LogStart(start) => log_start = log_start.max(*start),
                    SegmentEvent::Batch(..) | SegmentEvent::Forget | SegmentEvent::End(_) => {}
                }
                take(event)
            };
            match read_segment(disk, &path, base, may_be_torn, &mut note_start)? {
                Some(segment) => found.push_back(segment),
                None => disk.files().remove(&path).map_err(unusable)?,
            }
        }
        if let Some(base) = hole_before.filter(|base| *base > log_start) {
            let text = format!("a segment before {} is missing", shown(disk, &files.segment(base)));
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        for path in leftovers {
            disk.files().remove(&path).map_err(unusable)?;
        }
        if let Some(last) = found.pop_back() {
            let path = files.segment(last.base);
            let file = disk.files().open(&path).map_err(unusable)?;
            file.truncate(last.bytes).and_then(|()| file.sync()).map_err(unusable)?;
            let number = disk.number_file();
            files.active = Some(Active { base: last.base, bytes: last.bytes, number, file });
        }
        files.closed = found.iter().map(|one| Closed { base: one.base, end: one.end }).collect();
        Ok(files)
    }
}

fn shown(disk: &Disk, path: &Path) -> String {
    disk.files().root().join(path).display().to_string()
}

/// Reads one segment; `None` when a crash left nothing whole of it.
fn read_segment(
    disk: &Disk,
    path: &Path,
    base: Offset,
    may_be_torn: bool,
    take: &mut impl FnMut(SegmentEvent) -> Result<()>,
) -> Result<Option<Segment>> {
    let corrupt = |text: String| Error::new(ErrorKind::Corrupt, format!("{} {text}", shown(disk, path)));
    let bytes = disk.files().read(path).map_err(|source| unusable(disk.files(), source))?;
    let bytes = Bytes::from(bytes.unwrap_or_default());
    let mut reader = match Reader::open(bytes, FileKind::Segment) {
        Ok(reader) => reader,
        Err(Unreadable::Torn) if may_be_torn => return Ok(None),
        Err(Unreadable::Torn | Unreadable::Foreign) => {
            return Err(corrupt("is no segment of a log".to_owned()));
        }
        Err(Unreadable::Newer(format)) => {
            let text = format!(
                "{} has format {format}, this build reads up to {}: use a newer build",
                shown(disk, path),
                frame::FORMAT
            );
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
    };
    let head = reader.next().map(|first| decode_head(&first));
    let (head, covered_end) = match head {
        Some(Some(head)) if head.0.base == base => head,
        None if may_be_torn => return Ok(None),
        Some(Some(_) | None) | None => return Err(corrupt("has no head of its own".to_owned())),
    };
    take(SegmentEvent::Head(head))?;
    let mut end = base;
    while let Some(frame) = reader.next() {
        let event =
            decode(frame).ok_or_else(|| corrupt(format!("holds something else behind offset {end}")))?;
        if let SegmentEvent::Batch(batch, _) = &event {
            if batch.header.base_offset < end.0 {
                return Err(corrupt(format!(
                    "goes back to offset {} behind {end}",
                    batch.header.base_offset
                )));
            }
            end = Offset(batch.header.next_offset());
        }
        take(event)?;
    }
    end = end.max(Offset(covered_end));
    take(SegmentEvent::End(end))?;
    if reader.torn_bytes() > 0 {
        if !may_be_torn {
            return Err(corrupt(format!("is damaged at byte {}, behind offset {end}", reader.whole_bytes())));
        }
        warn!(
            segment = %path.display(), %end, bytes = reader.torn_bytes(),
            "an unfinished write at the end of a log is cut"
        );
    }
    Ok(Some(Segment { base, end, bytes: reader.whole_bytes() }))
}

fn decode_head(frame: &Frame) -> Option<(Head, i64)> {
    let mut payload = frame.payload.clone();
    if frame.kind != HEAD {
        return None;
    }
    let base = Offset(payload.try_get_i64().ok()?);
    let covered_end = payload.try_get_i64().ok()?;
    let log_start = Offset(payload.try_get_i64().ok()?);
    let valid = covered_end == COVERS_NOTHING || covered_end >= base.0;
    valid.then(|| (Head { base, log_start, producers: payload.to_vec() }, covered_end))
}

fn decode(frame: Frame) -> Option<SegmentEvent> {
    let mut payload = frame.payload;
    match frame.kind {
        BATCH => {
            let version = match payload.try_get_u8().ok()? {
                1 => TransactionVersion::V1,
                2 => TransactionVersion::V2,
                _ => return None,
            };
            // A copy: else one batch would keep its whole segment in memory.
            let batch = RawBatch::from_bytes(Bytes::copy_from_slice(&payload)).ok()?;
            Some(SegmentEvent::Batch(batch, version))
        }
        LOG_START => Some(SegmentEvent::LogStart(Offset(payload.try_get_i64().ok()?))),
        _ => None,
    }
}
