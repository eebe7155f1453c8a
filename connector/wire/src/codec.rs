//! Primitives of Kafka's flexible message encoding (KIP-482), for messages that we write ourselves.
//!
//! All our messages are flexible in all their versions: compact strings and arrays, a section of tagged fields at
//! the end of each structure. Tagged fields that we do not know are skipped, as the protocol asks. A count or
//! length is compared with the bytes that remain before anything is allocated for it.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::protocol::buf::{ByteBuf, ByteBufMut};
use uuid::Uuid;

use crate::WireError;

/// One value of a message: how it is written, measured and read at a version of the message.
pub trait Field: Sized {
    /// Fewest bytes that any value takes; bounds array counts.
    const BYTES_MIN: usize;

    /// Appends the value. Errors: `InvalidInput` when the version or the format cannot carry it.
    fn encode_field<B: ByteBufMut>(&self, buf: &mut B, version: i16) -> Result<(), WireError>;

    /// The bytes that [`Field::encode_field`] appends.
    fn encoded_bytes(&self, version: i16) -> usize;

    /// Takes the value off the front of the buffer. Errors: `Corrupt`.
    fn decode_field<B: ByteBuf>(buf: &mut B, version: i16) -> Result<Self, WireError>;
}

fn too_short(what: &str) -> WireError {
    WireError::corrupt(format!("message ends within {what}"))
}

/// Appends an unsigned varint.
pub fn put_unsigned_varint<B: ByteBufMut>(buf: &mut B, mut value: u32) {
    while value >= 0x80 {
        buf.put_u8((value as u8) | 0x80);
        value >>= 7;
    }
    buf.put_u8(value as u8);
}

/// Bytes of an unsigned varint: 1 to 5.
pub fn unsigned_varint_bytes(value: u32) -> usize {
    (38 - (value | 1).leading_zeros() as usize) / 7
}

/// Takes an unsigned varint of at most five bytes. Errors: `Corrupt`.
pub fn get_unsigned_varint<B: ByteBuf>(buf: &mut B) -> Result<u32, WireError> {
    let mut value: u64 = 0;
    for shift in [0, 7, 14, 21, 28] {
        let byte = buf.try_get_u8().map_err(|_| too_short("a varint"))?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(value).map_err(|_| WireError::corrupt("varint does not fit 32 bits"));
        }
    }
    Err(WireError::corrupt("varint longer than five bytes"))
}

/// Length of a compact value as written: one more than the length, so that 0 is null.
fn compact_length(len: usize) -> Result<u32, WireError> {
    u32::try_from(len)
        .ok()
        .and_then(|len| len.checked_add(1))
        .filter(|len| *len <= i32::MAX as u32)
        .ok_or_else(|| WireError::invalid(format!("{len} elements or bytes do not fit a message field")))
}

fn compact_bytes(len: usize) -> usize {
    unsigned_varint_bytes(u32::try_from(len).unwrap_or(u32::MAX).saturating_add(1)) + len
}

fn get_compact<B: ByteBuf>(buf: &mut B, what: &str) -> Result<Option<Bytes>, WireError> {
    match get_unsigned_varint(buf)?.checked_sub(1) {
        None => Ok(None),
        Some(len) => buf.try_get_bytes(len as usize).map(Some).map_err(|_| too_short(what)),
    }
}

/// Appends an empty section of tagged fields.
pub fn put_no_tagged_fields<B: ByteBufMut>(buf: &mut B) {
    buf.put_u8(0);
}

/// Skips a section of tagged fields. Errors: `Corrupt`.
pub fn skip_tagged_fields<B: ByteBuf>(buf: &mut B) -> Result<(), WireError> {
    for _ in 0..get_unsigned_varint(buf)? {
        let _tag = get_unsigned_varint(buf)?;
        let len = get_unsigned_varint(buf)? as usize;
        if buf.remaining() < len {
            return Err(too_short("a tagged field"));
        }
        buf.advance(len);
    }
    Ok(())
}

macro_rules! number_field {
    ($($type:ty: $put:ident, $get:ident;)*) => {$(
        impl Field for $type {
            const BYTES_MIN: usize = size_of::<$type>();

            fn encode_field<B: ByteBufMut>(&self, buf: &mut B, _: i16) -> Result<(), WireError> {
                buf.$put(*self);
                Ok(())
            }

            fn encoded_bytes(&self, _: i16) -> usize {
                size_of::<$type>()
            }

            fn decode_field<B: ByteBuf>(buf: &mut B, _: i16) -> Result<Self, WireError> {
                buf.$get().map_err(|_| too_short("a number"))
            }
        }
    )*};
}

number_field! {
    i8: put_i8, try_get_i8;
    i16: put_i16, try_get_i16;
    i32: put_i32, try_get_i32;
    i64: put_i64, try_get_i64;
}

impl Field for bool {
    const BYTES_MIN: usize = 1;

    fn encode_field<B: ByteBufMut>(&self, buf: &mut B, _: i16) -> Result<(), WireError> {
        buf.put_u8(u8::from(*self));
        Ok(())
    }

    fn encoded_bytes(&self, _: i16) -> usize {
        1
    }

    fn decode_field<B: ByteBuf>(buf: &mut B, _: i16) -> Result<Self, WireError> {
        Ok(buf.try_get_u8().map_err(|_| too_short("a boolean"))? != 0)
    }
}

impl Field for Uuid {
    const BYTES_MIN: usize = 16;

    fn encode_field<B: ByteBufMut>(&self, buf: &mut B, _: i16) -> Result<(), WireError> {
        buf.put_slice(self.as_bytes());
        Ok(())
    }

    fn encoded_bytes(&self, _: i16) -> usize {
        16
    }

    fn decode_field<B: ByteBuf>(buf: &mut B, _: i16) -> Result<Self, WireError> {
        Ok(Uuid::from_u128(buf.try_get_u128().map_err(|_| too_short("a uuid"))?))
    }
}

impl Field for Option<Bytes> {
    const BYTES_MIN: usize = 1;

    fn encode_field<B: ByteBufMut>(&self, buf: &mut B, _: i16) -> Result<(), WireError> {
        match self {
            None => buf.put_u8(0),
            Some(bytes) => {
                put_unsigned_varint(buf, compact_length(bytes.len())?);
                buf.put_slice(bytes);
            }
        }
        Ok(())
    }

    fn encoded_bytes(&self, _: i16) -> usize {
        self.as_ref().map_or(1, |bytes| compact_bytes(bytes.len()))
    }

    /// Zero copy when the buffer is a `Bytes`.
    fn decode_field<B: ByteBuf>(buf: &mut B, _: i16) -> Result<Self, WireError> {
        get_compact(buf, "bytes")
    }
}

impl Field for Option<StrBytes> {
    const BYTES_MIN: usize = 1;

    fn encode_field<B: ByteBufMut>(&self, buf: &mut B, version: i16) -> Result<(), WireError> {
        match self {
            None => {
                buf.put_u8(0);
                Ok(())
            }
            Some(text) => text.encode_field(buf, version),
        }
    }

    fn encoded_bytes(&self, _: i16) -> usize {
        self.as_ref().map_or(1, |text| compact_bytes(text.len()))
    }

    fn decode_field<B: ByteBuf>(buf: &mut B, _: i16) -> Result<Self, WireError> {
        get_compact(buf, "a string")?
            .map(StrBytes::from_utf8)
            .transpose()
            .map_err(|error| WireError::corrupt("string is not UTF-8").with_source(error))
    }
}

impl Field for StrBytes {
    const BYTES_MIN: usize = 1;

    fn encode_field<B: ByteBufMut>(&self, buf: &mut B, _: i16) -> Result<(), WireError> {
        put_unsigned_varint(buf, compact_length(self.len())?);
        buf.put_slice(self.as_bytes());
        Ok(())
    }

    fn encoded_bytes(&self, _: i16) -> usize {
        compact_bytes(self.len())
    }

    fn decode_field<B: ByteBuf>(buf: &mut B, version: i16) -> Result<Self, WireError> {
        Option::<StrBytes>::decode_field(buf, version)?
            .ok_or_else(|| WireError::corrupt("null where a string is required"))
    }
}

impl<F: Field> Field for Option<Vec<F>> {
    const BYTES_MIN: usize = 1;

    fn encode_field<B: ByteBufMut>(&self, buf: &mut B, version: i16) -> Result<(), WireError> {
        match self {
            None => {
                buf.put_u8(0);
                Ok(())
            }
            Some(elements) => elements.encode_field(buf, version),
        }
    }

    fn encoded_bytes(&self, version: i16) -> usize {
        self.as_ref().map_or(1, |elements| elements.encoded_bytes(version))
    }

    fn decode_field<B: ByteBuf>(buf: &mut B, version: i16) -> Result<Self, WireError> {
        let Some(count) = get_unsigned_varint(buf)?.checked_sub(1) else {
            return Ok(None);
        };
        let count = count as usize;
        if count > buf.remaining() / F::BYTES_MIN {
            return Err(WireError::corrupt(format!(
                "array of {count} elements in {} remaining bytes",
                buf.remaining()
            )));
        }
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(F::decode_field(buf, version)?);
        }
        Ok(Some(elements))
    }
}

impl<F: Field> Field for Vec<F> {
    const BYTES_MIN: usize = 1;

    fn encode_field<B: ByteBufMut>(&self, buf: &mut B, version: i16) -> Result<(), WireError> {
        put_unsigned_varint(buf, compact_length(self.len())?);
        self.iter().try_for_each(|element| element.encode_field(buf, version))
    }

    fn encoded_bytes(&self, version: i16) -> usize {
        let elements: usize = self.iter().map(|element| element.encoded_bytes(version)).sum();
        compact_bytes(self.len()) - self.len() + elements
    }

    fn decode_field<B: ByteBuf>(buf: &mut B, version: i16) -> Result<Self, WireError> {
        Option::<Vec<F>>::decode_field(buf, version)?
            .ok_or_else(|| WireError::corrupt("null where an array is required"))
    }
}

/// From which version on a field is in the message, and what its absence means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Presence {
    /// In every version.
    Always,
    /// From this version on; a value other than the default cannot be sent before it.
    Since(i16),
    /// From this version on; the value is dropped before it.
    IgnorableSince(i16),
}

impl Presence {
    pub(crate) fn at(self, version: i16) -> bool {
        match self {
            Presence::Always => true,
            Presence::Since(since) | Presence::IgnorableSince(since) => version >= since,
        }
    }

    /// Errors when leaving the field out would change what the message says.
    pub(crate) fn check_left_out(self, is_default: bool, name: &str, version: i16) -> Result<(), WireError> {
        match self {
            Presence::Since(since) if !is_default => Err(WireError::invalid(format!(
                "{name} needs version {since}, but the message is version {version}"
            ))),
            Presence::Since(_) | Presence::IgnorableSince(_) | Presence::Always => Ok(()),
        }
    }
}

macro_rules! presence {
    () => {
        $crate::codec::Presence::Always
    };
    (since $since:literal) => {
        $crate::codec::Presence::Since($since)
    };
    (ignorable_since $since:literal) => {
        $crate::codec::Presence::IgnorableSince($since)
    };
}

/// Defines a structure of a flexible message from its schema: fields in wire order with type, default and,
/// unless they are in all versions, `since N` or `ignorable_since N`.
macro_rules! flexible_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* $field:ident: $type:ty = $default:expr $(, $rule:ident $since:literal)?;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::codec::Field for $name {
            const BYTES_MIN: usize = 1 $(+ match $crate::codec::presence!($($rule $since)?) {
                $crate::codec::Presence::Always => <$type as $crate::codec::Field>::BYTES_MIN,
                $crate::codec::Presence::Since(_) | $crate::codec::Presence::IgnorableSince(_) => 0,
            })*;

            fn encode_field<B: kafka_protocol::protocol::buf::ByteBufMut>(
                &self,
                buf: &mut B,
                version: i16,
            ) -> Result<(), $crate::WireError> {
                $(
                    let presence = $crate::codec::presence!($($rule $since)?);
                    if presence.at(version) {
                        $crate::codec::Field::encode_field(&self.$field, buf, version)?;
                    } else {
                        let default: $type = $default;
                        presence.check_left_out(self.$field == default, stringify!($field), version)?;
                    }
                )*
                $crate::codec::put_no_tagged_fields(buf);
                Ok(())
            }

            fn encoded_bytes(&self, version: i16) -> usize {
                let mut bytes = 1;
                $(if $crate::codec::presence!($($rule $since)?).at(version) {
                    bytes += $crate::codec::Field::encoded_bytes(&self.$field, version);
                })*
                bytes
            }

            fn decode_field<B: kafka_protocol::protocol::buf::ByteBuf>(
                buf: &mut B,
                version: i16,
            ) -> Result<Self, $crate::WireError> {
                // Fields of a struct expression are evaluated in the order written, which is the wire order.
                let decoded = Self {
                    $($field: if $crate::codec::presence!($($rule $since)?).at(version) {
                        $crate::codec::Field::decode_field(buf, version)?
                    } else {
                        $default
                    },)*
                };
                $crate::codec::skip_tagged_fields(buf)?;
                Ok(decoded)
            }
        }
    };
}

/// Makes two flexible structures the request and the response of an API.
macro_rules! flexible_api {
    ($request:ident, $response:ident, key $key:expr, versions $min:literal ..= $max:literal) => {
        $crate::codec::flexible_message!($request, versions $min..=$max, header 2);
        $crate::codec::flexible_message!($response, versions $min..=$max, header 1);

        impl kafka_protocol::protocol::Request for $request {
            const KEY: i16 = $key;
            type Response = $response;
        }
    };
}

macro_rules! flexible_message {
    ($name:ident, versions $min:literal ..= $max:literal, header $header:literal) => {
        impl kafka_protocol::protocol::Message for $name {
            const VERSIONS: kafka_protocol::protocol::VersionRange =
                kafka_protocol::protocol::VersionRange { min: $min, max: $max };
            const DEPRECATED_VERSIONS: Option<kafka_protocol::protocol::VersionRange> = None;
        }

        impl kafka_protocol::protocol::HeaderVersion for $name {
            fn header_version(_version: i16) -> i16 {
                $header
            }
        }

        impl kafka_protocol::protocol::Encodable for $name {
            fn encode<B: kafka_protocol::protocol::buf::ByteBufMut>(
                &self,
                buf: &mut B,
                version: i16,
            ) -> anyhow::Result<()> {
                $crate::codec::check_version::<Self>(stringify!($name), version)?;
                Ok($crate::codec::Field::encode_field(self, buf, version)?)
            }

            fn compute_size(&self, version: i16) -> anyhow::Result<usize> {
                $crate::codec::check_version::<Self>(stringify!($name), version)?;
                Ok($crate::codec::Field::encoded_bytes(self, version))
            }
        }

        impl kafka_protocol::protocol::Decodable for $name {
            fn decode<B: kafka_protocol::protocol::buf::ByteBuf>(
                buf: &mut B,
                version: i16,
            ) -> anyhow::Result<Self> {
                $crate::codec::check_version::<Self>(stringify!($name), version)?;
                Ok($crate::codec::Field::decode_field(buf, version)?)
            }
        }
    };
}

pub(crate) use {flexible_api, flexible_message, flexible_struct, presence};

pub(crate) fn check_version<M: kafka_protocol::protocol::Message>(
    name: &str,
    version: i16,
) -> Result<(), WireError> {
    let range = M::VERSIONS;
    if (range.min..=range.max).contains(&version) {
        return Ok(());
    }
    Err(WireError::invalid(format!("{name} has versions {} to {}, not {version}", range.min, range.max)))
}

#[cfg(test)]
mod tests;
