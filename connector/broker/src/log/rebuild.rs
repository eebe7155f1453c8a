//! A batch with fewer records, as compaction leaves it: offsets, sequence numbers and the batch's own place stay.

use bytes::{BufMut, Bytes, BytesMut};
use sharestream_wire::WireError;
use sharestream_wire::codec::get_unsigned_varint;
use sharestream_wire::records::{BATCH_HEADER_BYTES, RawBatch, RecordView};

const LENGTH_AT: usize = 8;
/// Bytes that a batch's length does not count.
const LENGTH_PREFIX_BYTES: usize = 12;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const COUNT_AT: usize = 57;
const COMPRESSION_MASK: u8 = 0b111;

/// The batch with the records that `stays` names; `None` when there are none. A batch that loses records is not
/// compressed any more. Errors: Corrupt.
pub(super) fn keep_records(
    batch: &RawBatch,
    mut stays: impl FnMut(&RecordView<'_>) -> bool,
) -> Result<Option<RawBatch>, WireError> {
    let records = batch.records()?;
    let mut rest = records.payload().clone();
    let mut payload = BytesMut::new();
    let (mut kept, mut seen) = (0u32, 0u32);
    for record in records.iter() {
        let bytes = split_record(&mut rest)?;
        seen += 1;
        if stays(&record?) {
            kept += 1;
            payload.put_slice(&bytes);
        }
    }
    if kept == seen {
        return Ok((kept > 0).then(|| batch.clone()));
    }
    if kept == 0 {
        return Ok(None);
    }
    let mut bytes = BytesMut::with_capacity(BATCH_HEADER_BYTES + payload.len());
    bytes.put_slice(&batch.bytes[..BATCH_HEADER_BYTES]);
    bytes.put_slice(&payload);
    // It is shorter than the batch it was, unless that was compressed: then it is bounded by what a batch may unpack to.
    let length = i32::try_from(bytes.len() - LENGTH_PREFIX_BYTES)
        .map_err(|_| WireError::corrupt("a batch unpacks to more than 2 GiB"))?;
    bytes[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_be_bytes());
    bytes[ATTRIBUTES_AT + 1] &= !COMPRESSION_MASK;
    bytes[COUNT_AT..COUNT_AT + 4].copy_from_slice(&kept.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[ATTRIBUTES_AT..]);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    RawBatch::from_bytes(bytes.freeze()).map(Some)
}

/// Takes one record with its length off the front.
fn split_record(rest: &mut Bytes) -> Result<Bytes, WireError> {
    let mut after = rest.clone();
    // Zigzag: a length is never negative, so its lowest bit is 0.
    let length = (get_unsigned_varint(&mut after)? >> 1) as usize;
    let end = (rest.len() - after.len()).checked_add(length).filter(|end| *end <= rest.len());
    let end = end.ok_or_else(|| WireError::corrupt("a record is longer than its batch"))?;
    Ok(rest.split_to(end))
}
