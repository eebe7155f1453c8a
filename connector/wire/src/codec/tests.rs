//! Tests of the primitives; whole messages are attacked in `tests/`.

use bytes::{BufMut, BytesMut};
use proptest::prelude::*;

use super::*;

#[test]
fn varint_at_each_width_reads_what_it_writes() {
    for value in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, 0x1f_ffff, 0x20_0000, 0xfff_ffff, 0x1000_0000, u32::MAX] {
        let mut buf = BytesMut::new();
        put_unsigned_varint(&mut buf, value);
        assert_eq!(buf.len(), unsigned_varint_bytes(value), "{value}");
        assert_eq!(get_unsigned_varint(&mut buf).unwrap(), value);
    }
}

#[test]
fn varint_over_32_bits_is_corrupt() {
    for bytes in [&[0xff, 0xff, 0xff, 0xff, 0x1f][..], &[0x80; 6], &[0x80]] {
        assert!(get_unsigned_varint(&mut Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
    }
}

#[test]
fn array_count_beyond_the_remaining_bytes_is_refused_before_allocating() {
    let mut buf = BytesMut::new();
    put_unsigned_varint(&mut buf, u32::MAX);
    buf.put_slice(&[0; 64]);
    let error = Vec::<i64>::decode_field(&mut buf.freeze(), 0).unwrap_err();
    assert!(error.to_string().contains("remaining bytes"), "{error}");
}

#[test]
fn unknown_tagged_fields_are_skipped() {
    let mut buf = Bytes::from_static(&[2, 5, 3, b'a', b'b', b'c', 9, 0, 42]);
    skip_tagged_fields(&mut buf).unwrap();
    assert_eq!(&buf[..], &[42]);
}

#[test]
fn null_where_a_value_is_required_is_corrupt() {
    assert!(StrBytes::decode_field(&mut Bytes::from_static(&[0]), 0).is_err());
    assert!(Vec::<i8>::decode_field(&mut Bytes::from_static(&[0]), 0).is_err());
}

proptest! {
    #[test]
    fn text_reads_what_it_writes(text in proptest::option::of(".{0,200}")) {
        let field = text.map(StrBytes::from_string);
        let mut buf = BytesMut::new();
        field.encode_field(&mut buf, 0).unwrap();
        prop_assert_eq!(buf.len(), field.encoded_bytes(0));
        prop_assert_eq!(Option::<StrBytes>::decode_field(&mut buf.freeze(), 0).unwrap(), field);
    }
}
