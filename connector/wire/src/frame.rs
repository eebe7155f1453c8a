//! Length-prefixed frames with their headers.
//!
//! ```text
//! request:  length i32 | api_key i16 | version i16 | correlation_id i32 | client_id nullable string | [tags] | body
//! response: length i32 | correlation_id i32 | [tags] | body
//! ```
//! The tagged fields are there for flexible versions (request header 2, response header 1; KIP-482). The header
//! is written and read here and not by `kafka_protocol`, because that crate refuses api keys it does not know.
//!
//! Every message from outside, of client and broker alike, is decoded by the functions here, which hold it against its
//! [`shape`] first.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey as KnownApiKey;
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request};
use sharestream_base::ErrorKind;

use crate::WireError;
use crate::api::ApiKey;
use crate::{codec, shape};

/// Longest frame that is read or written unless a configuration says otherwise: 100 MiB, as Kafka's default.
pub const FRAME_BYTES_MAX: usize = 100 * 1024 * 1024;

/// Most that is reserved at once on the word of a length prefix alone.
const RESERVE_BYTES_MAX: usize = 1024 * 1024;

/// A whole request frame, length prefix included. Errors: `InvalidInput` (version or value not expressible).
pub fn encode_request<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: &str,
) -> Result<Bytes, WireError> {
    let context = || format!("encoding {} version {version}", ApiKey(R::KEY));
    let wrap = |error| WireError::from_anyhow(ErrorKind::InvalidInput, context(), error);
    let client_id_length = i16::try_from(client_id.len())
        .map_err(|_| WireError::invalid(format!("client id of {} bytes is too long", client_id.len())))?;
    let body_bytes = request.compute_size(version).map_err(wrap)?;

    let mut frame = BytesMut::with_capacity(15 + client_id.len() + body_bytes);
    frame.put_i32(0);
    frame.put_i16(R::KEY);
    frame.put_i16(version);
    frame.put_i32(correlation_id);
    let header_version = R::header_version(version);
    if header_version >= 1 {
        frame.put_i16(client_id_length);
        frame.put_slice(client_id.as_bytes());
    }
    if header_version >= 2 {
        codec::put_no_tagged_fields(&mut frame);
    }
    request.encode(&mut frame, version).map_err(wrap)?;
    finish(frame)
}

/// A whole response frame, length prefix included. Errors: `InvalidInput`.
pub fn encode_response<M: Encodable + HeaderVersion>(
    body: &M,
    version: i16,
    correlation_id: i32,
) -> Result<Bytes, WireError> {
    let wrap = |error| {
        let context = format!("encoding {} version {version}", std::any::type_name::<M>());
        WireError::from_anyhow(ErrorKind::InvalidInput, context, error)
    };
    let body_bytes = body.compute_size(version).map_err(wrap)?;
    let mut frame = BytesMut::with_capacity(9 + body_bytes);
    frame.put_i32(0);
    frame.put_i32(correlation_id);
    if M::header_version(version) >= 1 {
        codec::put_no_tagged_fields(&mut frame);
    }
    body.encode(&mut frame, version).map_err(wrap)?;
    finish(frame)
}

/// Fills in the length that was left open.
fn finish(mut frame: BytesMut) -> Result<Bytes, WireError> {
    let length = frame.len() - 4;
    if length > FRAME_BYTES_MAX {
        return Err(WireError::invalid(format!(
            "frame of {length} bytes exceeds the limit of {FRAME_BYTES_MAX}"
        )));
    }
    frame[..4].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(frame.freeze())
}

/// Correlation id and body of a response frame (without its length prefix). Errors: `Corrupt`, also when bytes are
/// left over: then the two sides do not speak the same version.
///
/// A broker that does not know the version of an ApiVersions request answers it in version 0, whatever was asked.
pub fn decode_response<R: Request>(mut frame: Bytes, version: i16) -> Result<(i32, R::Response), WireError> {
    let context = || format!("response of {} version {version}", ApiKey(R::KEY));
    let correlation_id = response_correlation_id(&frame)?;
    frame.advance(4);
    if R::Response::header_version(version) >= 1 {
        codec::skip_tagged_fields(&mut frame)?;
    }
    let response: R::Response = shape::decode(&mut frame, version)
        .map_err(|error| WireError::from_anyhow(ErrorKind::Corrupt, context(), error))?;
    if frame.has_remaining() {
        return Err(WireError::corrupt(format!("{} has {} bytes left over", context(), frame.len())));
    }
    Ok((correlation_id, response))
}

/// The body of a request frame, after [`decode_request_header`] has taken the header off. Errors: `Corrupt`, also
/// when bytes are left over.
pub fn decode_request_body<R: Request>(mut body: Bytes, version: i16) -> Result<R, WireError> {
    let request = decode_request_front(&mut body, version)?;
    if body.has_remaining() {
        return Err(WireError::corrupt(format!(
            "{} has {} bytes left over",
            of_request::<R>(version),
            body.len()
        )));
    }
    Ok(request)
}

/// As [`decode_request_body`], but leaves what is behind the request. Errors: `Corrupt`.
pub fn decode_request_front<R: Request>(body: &mut Bytes, version: i16) -> Result<R, WireError> {
    shape::decode(body, version)
        .map_err(|error| WireError::from_anyhow(ErrorKind::Corrupt, of_request::<R>(version), error))
}

fn of_request<R: Request>(version: i16) -> String {
    format!("request of {} version {version}", ApiKey(R::KEY))
}

/// The correlation id of a response frame (without its length prefix). Errors: `Corrupt`.
pub fn response_correlation_id(frame: &[u8]) -> Result<i32, WireError> {
    match frame.first_chunk::<4>() {
        Some(bytes) => Ok(i32::from_be_bytes(*bytes)),
        None => Err(WireError::corrupt("response ends within the correlation id")),
    }
}

/// Header of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Which API.
    pub api_key: i16,
    /// Which version of it.
    pub api_version: i16,
    /// Returned in the response.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<String>,
}

/// Takes the header off a request frame (without its length prefix) and leaves the body. Errors: `Corrupt`.
///
/// An api key that we do not know is no error: the broker answers it. Such keys are newer than flexible versions,
/// so that a section of tagged fields is expected but not insisted on.
pub fn decode_request_header(frame: &mut Bytes) -> Result<RequestHeader, WireError> {
    let short = |_| WireError::corrupt("request ends within the header");
    let api_key = frame.try_get_i16().map_err(short)?;
    let api_version = frame.try_get_i16().map_err(short)?;
    let correlation_id = frame.try_get_i32().map_err(short)?;
    let header_version =
        KnownApiKey::try_from(api_key).ok().map(|key| key.request_header_version(api_version));
    if header_version == Some(0) {
        return Ok(RequestHeader { api_key, api_version, correlation_id, client_id: None });
    }
    let client_id = match frame.try_get_i16().map_err(short)? {
        -1 => None,
        length => {
            let length =
                usize::try_from(length).map_err(|_| WireError::corrupt("client id of negative length"))?;
            if frame.len() < length {
                return Err(WireError::corrupt("request ends within the client id"));
            }
            let text = std::str::from_utf8(&frame[..length])
                .map_err(|error| WireError::corrupt("client id is not UTF-8").with_source(error))?
                .to_owned();
            frame.advance(length);
            Some(text)
        }
    };
    match header_version {
        Some(2..) => codec::skip_tagged_fields(frame)?,
        Some(_) => {}
        None => {
            let mut body = frame.clone();
            if codec::skip_tagged_fields(&mut body).is_ok() {
                *frame = body;
            }
        }
    }
    Ok(RequestHeader { api_key, api_version, correlation_id, client_id })
}

/// Splits frames out of a growing buffer. A length out of bounds ends the connection: there is no way to find the
/// next frame.
#[derive(Clone, Debug)]
pub struct FrameDecoder {
    bytes_max: usize,
}

impl FrameDecoder {
    /// A decoder that refuses frames longer than this.
    pub fn new(bytes_max: usize) -> Self {
        FrameDecoder { bytes_max }
    }

    /// The next whole frame without its length prefix, or none until more bytes have been read into the buffer.
    /// Zero copy. Errors: `Corrupt` (length negative or over the limit).
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Option<Bytes>, WireError> {
        let Some(prefix) = buf.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*prefix);
        let length =
            usize::try_from(length).ok().filter(|length| *length <= self.bytes_max).ok_or_else(|| {
                WireError::corrupt(format!("frame length {length} is not within 0 and {}", self.bytes_max))
            })?;
        let missing = (4 + length).saturating_sub(buf.len());
        if missing > 0 {
            // Bounded, so that a peer must send bytes to make us hold bytes.
            buf.reserve(missing.min(RESERVE_BYTES_MAX));
            return Ok(None);
        }
        buf.advance(4);
        Ok(Some(buf.split_to(length).freeze()))
    }
}

impl Default for FrameDecoder {
    fn default() -> Self {
        FrameDecoder::new(FRAME_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests;
