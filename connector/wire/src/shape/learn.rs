//! Learns the shape of a message from its decoder.
//!
//! A [`Probe`] is a buffer that answers each question of a decoder (a byte, a number, so many bytes) with what a script
//! says, and with zeros behind its end. What comes next then depends on the answer only where the answer is a length,
//! a count, or the mark of an optional structure:
//!
//! - a length is followed at once by the question for as many bytes;
//! - one element more makes the decoder ask the questions of one element more;
//! - anything else makes no difference.
//!
//! So each question is tried with a few answers, front to back. The answers are small, which is why the decoder cannot
//! do here what the shape keeps it from doing later.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, TryGetError};
use kafka_protocol::protocol::Decodable;
use kafka_protocol::protocol::buf::ByteBuf;
use sharestream_base::ErrorKind;

use super::{Part, bytes_min};
use crate::WireError;

/// Tags that are tried. The schemas number theirs from 0, and none has more than four.
const TAGS_TRIED: u8 = 16;
/// Stands for a length, not to be taken for one of the decoder's own.
const LENGTH: u8 = 5;
/// First byte of a varint of two bytes which, before a 0, is 1.
const LONG_ONE: u8 = 0x81;

/// What a decoder asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// A byte: a boolean, or a part of a varint.
    Byte,
    /// A number of one byte that is no part of a varint.
    Int8,
    /// A number of two bytes.
    Int16,
    /// A number of four bytes.
    Int32,
    /// As many bytes by a fixed number.
    Fixed(usize),
    /// As many bytes by a number that was read.
    Run(usize),
}

impl Asked {
    /// Whether these are the bytes of a length that was just answered.
    fn is_run_of(self, length: u8) -> bool {
        // A decoder that copies into a vector does not say that the number was read.
        matches!(self, Asked::Run(bytes) | Asked::Fixed(bytes) if bytes == usize::from(length))
    }
}

/// The parts of a message. Errors: as [`super::Shape::of`].
pub(super) fn parts<M: Decodable>(version: i16) -> Result<Vec<Part>, WireError> {
    let name = std::any::type_name::<M>();
    let context = || format!("shape of {name} version {version}");
    let learner = Learner { decode: &|probe| M::decode(probe, version).map(|_| ()) };
    let whole = learner
        .complete(&[])
        .map_err(|refused| WireError::from_anyhow(ErrorKind::Corrupt, context(), refused))?;
    learner
        .sequence(&mut Vec::new(), whole.asked.len())
        .map_err(|what| WireError::new(ErrorKind::Bug, format!("{}: {what}", context())))
}

/// A run of a decoder that ended well.
struct Run {
    script: Vec<u8>,
    asked: Vec<Asked>,
}

struct Learner<'a> {
    decode: &'a dyn Fn(&mut Probe) -> anyhow::Result<()>,
}

type Learned<T> = Result<T, String>;

impl Learner<'_> {
    /// Runs the decoder with these answers and, behind them, with zeros; with ones where a zero is refused, as where
    /// null is not allowed. Errors: that of the decoder.
    fn complete(&self, answers: &[u8]) -> anyhow::Result<Run> {
        let mut script = answers.to_vec();
        loop {
            let mut probe = Probe { script: &script, asked: Vec::new() };
            let decoded = (self.decode)(&mut probe);
            let asked = probe.asked;
            let Err(refused) = decoded else {
                script.resize(asked.len(), 0);
                return Ok(Run { script, asked });
            };
            // A decoder that refuses an answer asks nothing more.
            let Some(last) = asked.len().checked_sub(1).filter(|last| *last >= script.len()) else {
                return Err(refused);
            };
            script.resize(last, 0);
            script.push(1);
        }
    }

    /// Runs the decoder with more answers.
    fn with(&self, script: &[u8], answers: &[u8]) -> anyhow::Result<Run> {
        self.complete(&[script, answers].concat())
    }

    /// Questions that follow from more answers; none if they are refused.
    fn questions(&self, script: &[u8], answers: &[u8]) -> Option<usize> {
        self.with(script, answers).ok().map(|run| run.asked.len())
    }

    /// The parts that the next so many questions are for. Appends their answers to the script.
    fn sequence(&self, script: &mut Vec<u8>, questions: usize) -> Learned<Vec<Part>> {
        let end = script.len() + questions;
        let mut parts = Vec::new();
        while script.len() < end {
            let at = script.len();
            let run = self.complete(script).map_err(|refused| refused.to_string())?;
            let part = self.part(script, &run)?;
            script.push(run.script[at]);
            let has_length = matches!(part, Part::Text | Part::Blob | Part::Compact);
            if has_length && run.asked.get(at + 1).is_some_and(|next| next.is_run_of(0)) {
                script.push(0);
            }
            match (parts.last_mut(), part) {
                (Some(Part::Fixed(before)), Part::Fixed(bytes)) => *before += bytes,
                (_, part) => parts.push(part),
            }
        }
        if script.len() > end { Err("a part goes on behind its structure".to_owned()) } else { Ok(parts) }
    }

    /// The part that begins with the question behind the script.
    fn part(&self, script: &[u8], run: &Run) -> Learned<Part> {
        let at = script.len();
        let is_length = |answer: u8| {
            let run = self.with(script, &[answer]).ok();
            run.and_then(|run| run.asked.get(at + 1).copied()).is_some_and(|next| next.is_run_of(LENGTH))
        };
        match run.asked[at] {
            Asked::Fixed(bytes) => Ok(Part::Fixed(bytes)),
            Asked::Int8 => self.counted(script, Part::Optional, 1),
            Asked::Int16 if is_length(LENGTH) => Ok(Part::Text),
            Asked::Int16 => Ok(Part::Fixed(2)),
            Asked::Int32 if is_length(LENGTH) => Ok(Part::Blob),
            Asked::Int32 => self.counted(script, Part::Array, 4),
            Asked::Byte if self.questions(script, &[LONG_ONE]) == Some(run.asked.len()) => Ok(Part::Fixed(1)),
            Asked::Byte if is_length(LENGTH + 1) => Ok(Part::Compact),
            Asked::Byte => self.behind_varint(script),
            Asked::Run(_) => Err(format!("question {at} is for bytes without a length")),
        }
    }

    /// A number of elements, or a number that means nothing here.
    fn counted(&self, script: &[u8], counted: fn(Vec<Part>) -> Part, bytes: usize) -> Learned<Part> {
        let none = self.questions(script, &[0]);
        let one = self.questions(script, &[1]);
        match none.zip(one) {
            Some((none, one)) if one > none => self.element(script, 1, one - none).map(counted),
            Some((none, one)) if one == none => Ok(Part::Fixed(bytes)),
            _ => Err(format!("question {} cannot be answered with 0 and 1", script.len())),
        }
    }

    /// A count of elements that is one more than it is, or a count of tagged fields.
    fn behind_varint(&self, script: &[u8]) -> Learned<Part> {
        let zero = self.questions(script, &[0]);
        let one = self.questions(script, &[1]);
        match (zero, one) {
            (Some(zero), one) if one != Some(zero) => self.tagged(script, zero).map(Part::Tagged),
            (_, Some(none)) => {
                let one = self.questions(script, &[2]).and_then(|one| one.checked_sub(none));
                let one = one.ok_or_else(|| format!("question {} does not take an element", script.len()))?;
                self.element(script, 2, one).map(Part::CompactArray)
            }
            _ => Err(format!("question {} takes neither 0 nor 1", script.len())),
        }
    }

    fn element(&self, script: &[u8], count: u8, questions: usize) -> Learned<Vec<Part>> {
        let parts = self.sequence(&mut [script, &[count]].concat(), questions)?;
        if bytes_min(&parts) == 0 { Err("an element without bytes".to_owned()) } else { Ok(parts) }
    }

    /// The tagged fields that the decoder knows; `without` are the questions when there are none.
    fn tagged(&self, script: &[u8], without: usize) -> Learned<BTreeMap<u32, Vec<Part>>> {
        let at = script.len();
        let mut known = BTreeMap::new();
        for tag in 0..TAGS_TRIED {
            // Some tags are refused in some versions.
            let Ok(run) = self.with(script, &[1, tag, 0]) else { continue };
            if run.asked.get(at + 3).is_some_and(|next| next.is_run_of(0)) {
                continue;
            }
            let questions = (run.asked.len() - without)
                .checked_sub(2)
                .filter(|questions| *questions > 0)
                .ok_or_else(|| format!("tagged field {tag} is empty"))?;
            let content = self.sequence(&mut [script, &[1, tag, 0]].concat(), questions)?;
            known.insert(u32::from(tag), content);
        }
        Ok(known)
    }
}

/// The buffer that a decoder is asked with. It seems to have no end.
struct Probe<'a> {
    script: &'a [u8],
    asked: Vec<Asked>,
}

const ZEROS: [u8; 256] = [0; 256];

impl Probe<'_> {
    fn answer(&mut self, asked: Asked) -> u8 {
        let answer = self.script.get(self.asked.len()).copied().unwrap_or(0);
        self.asked.push(asked);
        answer
    }

    fn fixed<T: Default>(&mut self) -> Result<T, TryGetError> {
        self.answer(Asked::Fixed(size_of::<T>()));
        Ok(T::default())
    }
}

impl Buf for Probe<'_> {
    fn remaining(&self) -> usize {
        isize::MAX as usize
    }

    fn chunk(&self) -> &[u8] {
        &ZEROS
    }

    fn advance(&mut self, bytes: usize) {
        self.answer(Asked::Run(bytes));
    }

    fn try_copy_to_slice(&mut self, to: &mut [u8]) -> Result<(), TryGetError> {
        self.answer(Asked::Fixed(to.len()));
        to.fill(0);
        Ok(())
    }

    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        Ok(self.answer(Asked::Byte))
    }

    fn try_get_i8(&mut self) -> Result<i8, TryGetError> {
        Ok(self.answer(Asked::Int8) as i8)
    }

    fn try_get_i16(&mut self) -> Result<i16, TryGetError> {
        Ok(self.answer(Asked::Int16).into())
    }

    fn try_get_i32(&mut self) -> Result<i32, TryGetError> {
        Ok(self.answer(Asked::Int32).into())
    }

    fn try_get_u16(&mut self) -> Result<u16, TryGetError> {
        self.fixed()
    }

    fn try_get_u32(&mut self) -> Result<u32, TryGetError> {
        self.fixed()
    }

    fn try_get_i64(&mut self) -> Result<i64, TryGetError> {
        self.fixed()
    }

    fn try_get_f64(&mut self) -> Result<f64, TryGetError> {
        self.fixed()
    }

    fn try_get_u128(&mut self) -> Result<u128, TryGetError> {
        self.fixed()
    }
}

impl ByteBuf for Probe<'_> {
    fn peek_bytes(&mut self, range: std::ops::Range<usize>) -> Bytes {
        Bytes::from(vec![0; range.len().min(ZEROS.len())])
    }

    fn get_bytes(&mut self, bytes: usize) -> Bytes {
        self.answer(Asked::Run(bytes));
        // Answers are bytes, so that no length is longer.
        Bytes::from_static(&ZEROS[..bytes.min(ZEROS.len())])
    }
}
