//! Checksummed frames, of which every file consists, behind eight bytes that say what it is and its format version.
//!
//! ```text
//! file  = magic (6 bytes) | format version u16 | frame*
//! frame = length u32 of kind and payload | CRC-32C u32 of length, kind and payload | kind u8 | payload
//! ```
//! Numbers are big-endian. A length of 0 is no frame, so a tail that reads as zeros is a torn one.

use bytes::Bytes;

/// The format that this build writes, and the newest that it reads.
pub(crate) const FORMAT: u16 = 1;
/// Bytes before the first frame.
pub(crate) const PREAMBLE_BYTES: usize = 8;
/// Bytes of a frame before its kind.
const HEAD_BYTES: usize = 8;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A segment of a partition's log.
    Segment,
    /// What the cluster agrees on.
    Meta,
}

impl FileKind {
    fn magic(self) -> &'static [u8; 6] {
        match self {
            FileKind::Segment => b"SHSEGM",
            FileKind::Meta => b"SHMETA",
        }
    }

    /// The first bytes of such a file.
    pub(crate) fn preamble(self) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..6].copy_from_slice(self.magic());
        bytes[6..].copy_from_slice(&FORMAT.to_be_bytes());
        bytes
    }
}

/// Why the beginning of a file does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Too short, or zeros from somewhere on: a crash cut it off before it was whole.
    Torn,
    /// Something else than it should be.
    Foreign,
    /// Written by a newer build.
    Newer(u16),
}

/// Adds a frame to `out`.
pub(crate) fn put(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    out.push(kind);
    for part in parts {
        out.extend_from_slice(part);
    }
    // Frames hold one batch or less, which is at most a request frame long.
    let length = u32::try_from(out.len() - start - HEAD_BYTES).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    let crc = crc_of(length, &out[start + HEAD_BYTES..]);
    out[start + 4..start + HEAD_BYTES].copy_from_slice(&crc.to_be_bytes());
}

fn crc_of(length: u32, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length.to_be_bytes()), body)
}

/// A whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Its kind.
    pub(crate) kind: u8,
    /// What it carries; a slice of the file.
    pub(crate) payload: Bytes,
}

/// Reads frames front to back, up to the first that is not whole.
#[derive(Debug)]
pub(crate) struct Reader {
    rest: Bytes,
    read: u64,
}

impl Reader {
    /// Behind the preamble of a file of this kind.
    pub(crate) fn open(mut file: Bytes, kind: FileKind) -> Result<Reader, Unreadable> {
        if file.len() < PREAMBLE_BYTES {
            return Err(Unreadable::Torn);
        }
        let preamble = file.split_to(PREAMBLE_BYTES);
        let whole = kind.preamble();
        let same = preamble.iter().zip(&whole).take_while(|(found, wanted)| found == wanted).count();
        if same < PREAMBLE_BYTES && preamble[same..].iter().all(|byte| *byte == 0) {
            return Err(Unreadable::Torn);
        }
        if &preamble[..6] != kind.magic() {
            return Err(Unreadable::Foreign);
        }
        match u16::from_be_bytes([preamble[6], preamble[7]]) {
            FORMAT => Ok(Reader { rest: file, read: PREAMBLE_BYTES as u64 }),
            0 => Err(Unreadable::Foreign),
            newer => Err(Unreadable::Newer(newer)),
        }
    }

    /// The next whole frame; `None` at the end, or where a frame is torn or damaged.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let head = self.rest.first_chunk::<HEAD_BYTES>()?;
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let crc = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let end = HEAD_BYTES.checked_add(usize::try_from(length).ok()?)?;
        let body = self.rest.get(HEAD_BYTES..end)?;
        let (kind, _) = body.split_first()?;
        if crc_of(length, body) != crc {
            return None;
        }
        let kind = *kind;
        let payload = self.rest.slice(HEAD_BYTES + 1..end);
        self.rest = self.rest.slice(end..);
        self.read += end as u64;
        Some(Frame { kind, payload })
    }

    /// Bytes of the file that were whole.
    pub(crate) fn whole_bytes(&self) -> u64 {
        self.read
    }

    /// Bytes behind them.
    pub(crate) fn torn_bytes(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(frames: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = FileKind::Segment.preamble().to_vec();
        for (kind, payload) in frames {
            put(&mut bytes, *kind, &[payload]);
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let Ok(mut reader) = Reader::open(Bytes::copy_from_slice(bytes), FileKind::Segment) else {
            return Vec::new();
        };
        let frames = std::iter::from_fn(|| reader.next());
        frames.map(|frame| (frame.kind, frame.payload.to_vec())).collect()
    }

    #[test]
    fn a_file_of_another_kind_or_a_newer_format_is_told_apart_from_a_torn_one() {
        let open = |bytes: &[u8]| Reader::open(Bytes::copy_from_slice(bytes), FileKind::Meta).map(|_| ());
        assert_eq!(open(&FileKind::Meta.preamble()), Ok(()));
        assert_eq!(open(&FileKind::Segment.preamble()), Err(Unreadable::Foreign));
        assert_eq!(open(&FileKind::Meta.preamble()[..7]), Err(Unreadable::Torn));
        assert_eq!(open(&[0; 100]), Err(Unreadable::Torn));
        assert_eq!(open(b"SHME\0\0\0\0"), Err(Unreadable::Torn));
        let mut newer = FileKind::Meta.preamble();
        newer[7] = 9;
        assert_eq!(open(&newer), Err(Unreadable::Newer(9)));
    }

    proptest! {
        #[test]
        fn a_cut_or_changed_file_gives_a_prefix_of_its_frames(
            frames in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 0..8),
            at in any::<prop::sample::Index>(),
            flip in prop::option::of(1u8..=255),
        ) {
            let whole = file(&frames);
            prop_assert_eq!(&read(&whole), &frames);
            let at = at.index(whole.len());
            let mut hurt = whole.clone();
            match flip {
                Some(bits) => hurt[at] ^= bits,
                None => hurt.truncate(at),
            }
            let found = read(&hurt);
            prop_assert!(found.len() <= frames.len());
            prop_assert_eq!(&found[..], &frames[..found.len()]);
            // What lies wholly before the wound is there.
            let mut end = PREAMBLE_BYTES;
            for (place, (_, payload)) in frames.iter().enumerate() {
                end += HEAD_BYTES + 1 + payload.len();
                if end <= at {
                    prop_assert!(found.len() > place);
                }
            }
        }
    }
}
