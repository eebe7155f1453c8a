//! Messages of a shape, for tests.

use super::Part;
use crate::codec::put_unsigned_varint;

/// Elements of a sampled array, and bytes of a sampled text, at most.
const COUNT_MAX: usize = 3;

/// Appends some bytes that the parts may be.
pub(super) fn parts(parts: &[Part], below: &mut dyn FnMut(usize) -> usize, out: &mut Vec<u8>) {
    for part in parts {
        self::part(part, below, out);
    }
}

fn part(part: &Part, below: &mut dyn FnMut(usize) -> usize, out: &mut Vec<u8>) {
    let count = below(COUNT_MAX + 1);
    match part {
        Part::Fixed(bytes) => out.extend((0..*bytes).map(|_| below(256) as u8)),
        Part::Text => {
            out.extend_from_slice(&(count as i16).to_be_bytes());
            text(count, below, out);
        }
        Part::Blob => {
            out.extend_from_slice(&(count as i32).to_be_bytes());
            text(count, below, out);
        }
        Part::Compact => {
            put_unsigned_varint(out, count as u32 + 1);
            text(count, below, out);
        }
        Part::Array(element) => {
            out.extend_from_slice(&(count as i32).to_be_bytes());
            (0..count).for_each(|_| parts(element, below, out));
        }
        Part::CompactArray(element) => {
            put_unsigned_varint(out, count as u32 + 1);
            (0..count).for_each(|_| parts(element, below, out));
        }
        Part::Optional(structure) if count > 0 => {
            out.push(1);
            parts(structure, below, out);
        }
        Part::Optional(_) => out.push(0xff),
        Part::Tagged(known) => {
            let chosen: Vec<_> = known.iter().filter(|_| below(2) == 1).collect();
            let unknown = below(2);
            put_unsigned_varint(out, (chosen.len() + unknown) as u32);
            for (tag, content) in chosen {
                let mut field = Vec::new();
                parts(content, below, &mut field);
                put_unsigned_varint(out, *tag);
                put_unsigned_varint(out, field.len() as u32);
                out.append(&mut field);
            }
            if unknown == 1 {
                put_unsigned_varint(out, 20_000);
                put_unsigned_varint(out, count as u32);
                text(count, below, out);
            }
        }
    }
}

fn text(bytes: usize, below: &mut dyn FnMut(usize) -> usize, out: &mut Vec<u8>) {
    out.extend((0..bytes).map(|_| b'a' + below(26) as u8));
}
