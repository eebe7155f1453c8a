//! One message on a connection.
//!
//! ```text
//! magic "shpr" | version u8 | kind u8 | attempt u64 | length u32 | payload | xxHash64 of all in front of it, u64
//! ```
//!
//! All numbers are big endian. `attempt` is the job epoch that the message belongs to, 0 where there is none yet: a message
//! of an older attempt is known by it, whatever connection it comes by. A frame that is damaged, too long or of another
//! version poisons its connection: nothing behind it is read.

use std::io;

use sharestream_base::BoxIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use twox_hash::XxHash64;

use super::bytes::{ByteReader, Malformed};
use crate::ErrorKind;
use crate::error::{Error, Result};

/// The version of everything that goes between the processes of a job. All three must speak the same: they are started
/// from one program.
pub const WIRE_VERSION: u8 = 1;

const MAGIC: [u8; 4] = *b"shpr";
const HEADER_BYTES: usize = 18;
const CHECKSUM_BYTES: usize = 8;

/// Longest payload from somebody who has not said who he is.
pub(crate) const GREETING_BYTES_MAX: u32 = 64 << 10;
/// Longest payload of a control connection. A sealed epoch has far less than a hundred thousand ranges.
pub(crate) const CONTROL_BYTES_MAX: u32 = 64 << 20;
/// Longest payload of a data connection: one batch. Batches above the bound of a channel pass alone.
pub(crate) const DATA_BYTES_MAX: u32 = 1 << 30;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    /// The job epoch that it belongs to; 0: none.
    pub(crate) attempt: u64,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The bytes of the frame. Errors: `InvalidInput`, the payload is longer than `payload_max`.
    pub(crate) fn encode(&self, payload_max: u32) -> Result<Vec<u8>> {
        let length = u32::try_from(self.payload.len()).ok().filter(|length| *length <= payload_max);
        let Some(length) = length else {
            let context =
                format!("a message of {} bytes is above the bound of {payload_max}", self.payload.len());
            return Err(Error::new(ErrorKind::InvalidInput, context));
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.payload.len() + CHECKSUM_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[WIRE_VERSION, self.kind]);
        bytes.extend_from_slice(&self.attempt.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&self.payload);
        let checksum = XxHash64::oneshot(0, &bytes);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        Ok(bytes)
    }
}

/// What the first bytes of a frame say.
struct Header {
    kind: u8,
    attempt: u64,
    length: u32,
}

fn header(bytes: &[u8; HEADER_BYTES], payload_max: u32) -> Result<Header> {
    let mut reader = ByteReader::new(bytes);
    let magic = reader.u32()?.to_be_bytes();
    if magic != MAGIC {
        return Err(Malformed::new(format!("{magic:02x?} is not the begin of one")).into());
    }
    let version = reader.u8()?;
    if version != WIRE_VERSION {
        let context = format!(
            "the other process speaks version {version} of the messages between processes, this one {WIRE_VERSION}: \
             start all three from the same sharestream"
        );
        return Err(Error::new(ErrorKind::InvalidInput, context));
    }
    let (kind, attempt, length) = (reader.u8()?, reader.u64()?, reader.u32()?);
    if length > payload_max {
        return Err(Malformed::new(format!("{length} bytes are above the bound of {payload_max}")).into());
    }
    Ok(Header { kind, attempt, length })
}

/// Reads frames.
pub(crate) struct FrameReader {
    io: ReadHalf<BoxIo>,
    payload_max: u32,
}

/// Writes frames.
pub(crate) struct FrameWriter {
    io: WriteHalf<BoxIo>,
    payload_max: u32,
}

/// Both directions of a connection.
pub(crate) fn framed(io: BoxIo, payload_max: u32) -> (FrameReader, FrameWriter) {
    let (reading, writing) = tokio::io::split(io);
    (FrameReader { io: reading, payload_max }, FrameWriter { io: writing, payload_max })
}

fn broken(error: io::Error) -> Error {
    Error::new(ErrorKind::Retry, "the connection broke").with_source(error)
}

impl FrameReader {
    /// Takes payloads up to this length from now on: the peer is known.
    pub(crate) fn allow(&mut self, payload_max: u32) {
        self.payload_max = payload_max;
    }

    /// The next frame; `None` when the peer has closed the connection between two. Not cancel safe: what was read of a frame
    /// is lost. Errors: `Retry`, the connection broke; `Abort`, malformed; `InvalidInput`, another version.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>> {
        let mut first = [0; HEADER_BYTES];
        let mut filled = 0;
        while filled < HEADER_BYTES {
            match self.io.read(&mut first[filled..]).await.map_err(broken)? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(Error::new(ErrorKind::Retry, "the connection ended within a message")),
                count => filled += count,
            }
        }
        let Header { kind, attempt, length } = header(&first, self.payload_max)?;
        // Grows with what comes: a length alone allocates nothing.
        let wanted = u64::from(length) + CHECKSUM_BYTES as u64;
        let mut payload = Vec::new();
        let got = (&mut self.io).take(wanted).read_to_end(&mut payload).await.map_err(broken)?;
        if (got as u64) < wanted {
            return Err(Error::new(ErrorKind::Retry, "the connection ended within a message"));
        }
        let checksum = payload.split_off(length as usize);
        if checked(&first, &payload).to_be_bytes() != checksum.as_slice() {
            return Err(Malformed::new("its checksum does not match").into());
        }
        Ok(Some(Frame { kind, attempt, payload }))
    }
}

fn checked(header: &[u8], payload: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = XxHash64::with_seed(0);
    hasher.write(header);
    hasher.write(payload);
    hasher.finish()
}

impl FrameWriter {
    /// Writes one frame. Not cancel safe: half a frame poisons the connection. Errors: `Retry`, the connection broke;
    /// `InvalidInput`, the frame is too long.
    pub(crate) async fn write(&mut self, frame: &Frame) -> Result<()> {
        let bytes = frame.encode(self.payload_max)?;
        self.io.write_all(&bytes).await.map_err(broken)?;
        self.io.flush().await.map_err(broken)
    }

    /// Says that nothing follows.
    pub(crate) async fn shutdown(&mut self) -> Result<()> {
        self.io.shutdown().await.map_err(broken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    async fn read_all(bytes: &[u8]) -> Result<Vec<Frame>> {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (mut reader, _kept) = framed(Box::new(ours), 1 << 10);
        let (_kept_too, mut io) = tokio::io::split(theirs);
        io.write_all(bytes).await.unwrap();
        io.shutdown().await.unwrap();
        let mut frames = Vec::new();
        while let Some(frame) = reader.next().await? {
            frames.push(frame);
        }
        Ok(frames)
    }

    fn frame(payload: Vec<u8>) -> Frame {
        Frame { kind: 3, attempt: 0x0102, payload }
    }

    #[tokio::test]
    async fn frames_read_back_and_every_damage_is_found() {
        let frames = [frame(vec![7; 5]), frame(Vec::new())];
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.encode(1 << 10).unwrap()).collect();
        assert_eq!(read_all(&bytes).await.unwrap(), frames);
        let first = HEADER_BYTES + 5 + CHECKSUM_BYTES;
        for cut in 0..bytes.len() {
            let is_whole = cut == 0 || cut == first;
            assert_eq!(read_all(&bytes[..cut]).await.is_ok(), is_whole, "{cut}");
        }
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x40;
            assert!(read_all(&damaged).await.is_err(), "{position}");
        }
    }

    #[tokio::test]
    async fn another_version_is_named_and_a_length_above_the_bound_is_refused() {
        let mut bytes = frame(Vec::new()).encode(1).unwrap();
        bytes[4] = 9;
        let error = read_all(&bytes).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("version 9"), "{error}");
        let long = frame(vec![0; 2 << 10]);
        assert!(read_all(&long.encode(4 << 10).unwrap()).await.is_err());
        assert_eq!(long.encode(1 << 10).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _frames_or_error = runtime.block_on(read_all(&bytes));
        }
    }
}
