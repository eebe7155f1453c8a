//! Rejected rows: their hidden columns, why each was rejected, and the kind of the error.

use std::ops::AddAssign;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use serde::Serialize;
use sharestream_base::ErrorKind;

use super::{ERROR, REJECT_KIND, fields};
use crate::{Error, Result};

/// Why a row was rejected: each kind has a policy of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectKind {
    /// The record does not fit the format.
    Decode,
    /// An operator rejected the row, such as an SQL expression that fails on it.
    Transform,
    /// A call to the outside rejected the row ([`crate::async_map`]).
    Call,
    /// The record was delivered so often that a further delivery could be its last.
    DeliveryLimit,
    /// The record, or what it becomes, is larger than it may be.
    TooLarge,
}

impl RejectKind {
    /// All of them.
    pub const ALL: [RejectKind; 5] = [
        RejectKind::Decode,
        RejectKind::Transform,
        RejectKind::Call,
        RejectKind::DeliveryLimit,
        RejectKind::TooLarge,
    ];

    /// Its name in headers, metrics and settings.
    pub fn name(self) -> &'static str {
        match self {
            RejectKind::Decode => "decode",
            RejectKind::Transform => "transform",
            RejectKind::Call => "call",
            RejectKind::DeliveryLimit => "delivery-limit",
            RejectKind::TooLarge => "too-large",
        }
    }

    /// The kind called `name`.
    pub fn of_name(name: &str) -> Option<RejectKind> {
        RejectKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Rejected rows by kind, whatever became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RejectCounts {
    /// See [`RejectKind::Decode`].
    pub decode: u64,
    /// See [`RejectKind::Transform`].
    pub transform: u64,
    /// See [`RejectKind::Call`].
    pub call: u64,
    /// See [`RejectKind::DeliveryLimit`].
    pub delivery_limit: u64,
    /// See [`RejectKind::TooLarge`].
    pub too_large: u64,
}

impl RejectCounts {
    /// How many there are of a kind.
    pub fn of(&self, kind: RejectKind) -> u64 {
        match kind {
            RejectKind::Decode => self.decode,
            RejectKind::Transform => self.transform,
            RejectKind::Call => self.call,
            RejectKind::DeliveryLimit => self.delivery_limit,
            RejectKind::TooLarge => self.too_large,
        }
    }

    /// Counts one.
    pub fn add(&mut self, kind: RejectKind) {
        *match kind {
            RejectKind::Decode => &mut self.decode,
            RejectKind::Transform => &mut self.transform,
            RejectKind::Call => &mut self.call,
            RejectKind::DeliveryLimit => &mut self.delivery_limit,
            RejectKind::TooLarge => &mut self.too_large,
        } += 1;
    }
}

impl AddAssign for RejectCounts {
    fn add_assign(&mut self, other: Self) {
        self.decode += other.decode;
        self.transform += other.transform;
        self.call += other.call;
        self.delivery_limit += other.delivery_limit;
        self.too_large += other.too_large;
    }
}

/// Schema of a batch of rejected rows: the hidden columns, then [`ERROR`] and [`REJECT_KIND`]. One row becomes one dead
/// letter.
pub fn rejected_schema() -> SchemaRef {
    let mut fields = fields();
    fields.push(Arc::new(Field::new(ERROR, DataType::Utf8, false)));
    fields.push(Arc::new(Field::new(REJECT_KIND, DataType::Utf8, false)));
    Arc::new(Schema::new(fields))
}

/// A batch of rejected rows: their hidden columns, and the kind and text of each error.
///
/// # Errors
/// The columns are not the hidden ones, or not of the same length as the errors.
pub fn rejected_batch<S: AsRef<str>>(
    hidden: Vec<ArrayRef>,
    errors: impl IntoIterator<Item = (RejectKind, S)>,
) -> std::result::Result<RecordBatch, ArrowError> {
    let (kinds, texts): (Vec<&str>, Vec<S>) =
        errors.into_iter().map(|(kind, text)| (kind.name(), text)).unzip();
    let mut columns = hidden;
    columns.push(Arc::new(StringArray::from_iter_values(texts)));
    columns.push(Arc::new(StringArray::from(kinds)));
    RecordBatch::try_new(rejected_schema(), columns)
}

/// The errors of a batch of rejected rows. Errors: `Bug`, it has none.
pub fn errors(rejected: &RecordBatch) -> Result<&StringArray> {
    texts(rejected, ERROR)
}

/// The kinds of the errors of a batch of rejected rows. Errors: `Bug`, it has none, or one that nobody knows.
pub fn reject_kinds(rejected: &RecordBatch) -> Result<Vec<RejectKind>> {
    let unknown = || Error::new(ErrorKind::Bug, "a rejected row with an unknown kind of error");
    let names = texts(rejected, REJECT_KIND)?;
    (0..rejected.num_rows()).map(|row| RejectKind::of_name(names.value(row)).ok_or_else(unknown)).collect()
}

fn texts<'a>(rejected: &'a RecordBatch, name: &str) -> Result<&'a StringArray> {
    let column = rejected.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    column.ok_or_else(|| Error::new(ErrorKind::Bug, format!("a batch of rejected rows without its {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_errors_come_back_as_they_went_and_are_counted_apart() {
        let nothing: Vec<ArrayRef> =
            fields().iter().map(|field| arrow_array::new_empty_array(field.data_type())).collect();
        let empty = rejected_batch(nothing.clone(), Vec::<(RejectKind, &str)>::new()).unwrap();
        assert_eq!(reject_kinds(&empty).unwrap(), []);
        assert!(rejected_batch(nothing, [(RejectKind::Call, "no row for it")]).is_err());
        let mut counts = RejectCounts::default();
        for (times, kind) in (1..).zip(RejectKind::ALL) {
            assert_eq!(RejectKind::of_name(kind.name()), Some(kind));
            (0..times).for_each(|_| counts.add(kind));
        }
        counts += counts;
        assert_eq!(RejectKind::ALL.map(|kind| counts.of(kind)), [2, 4, 6, 8, 10]);
        assert_eq!(RejectKind::of_name("Decode"), None);
    }
}
