//! JSON decoding, one object at a time, straight into the columns: no tree is built.

use std::fmt;

use arrow_array::ArrayRef;
use arrow_schema::ArrowError;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, Visitor};

use super::RowError;
use super::columns::ColumnBuilder;
use super::schema::JsonFormat;

/// Decodes flat JSON objects.
#[derive(Debug)]
pub struct JsonDecoder {
    columns: Vec<ColumnBuilder>,
    /// Which columns the object at hand has named.
    seen: Vec<bool>,
    strict: bool,
    row_count: usize,
}

impl JsonDecoder {
    pub(super) fn new(format: &JsonFormat) -> Self {
        JsonDecoder {
            columns: format.columns.iter().map(ColumnBuilder::new).collect(),
            seen: vec![false; format.columns.len()],
            strict: format.strict,
            row_count: 0,
        }
    }

    /// Adds the row of one object.
    pub(super) fn decode(&mut self, text: &str) -> Result<(), RowError> {
        let result = self.decode_object(text);
        match result {
            Ok(()) => self.row_count += 1,
            Err(_) => {
                for column in &mut self.columns {
                    column.truncate(self.row_count);
                }
            }
        }
        result
    }

    fn decode_object(&mut self, text: &str) -> Result<(), RowError> {
        self.seen.fill(false);
        let mut field_error = None;
        let object = ObjectSeed {
            columns: &mut self.columns,
            seen: &mut self.seen,
            strict: self.strict,
            error: &mut field_error,
        };
        let mut parser = serde_json::Deserializer::from_str(text);
        let parsed = object.deserialize(&mut parser).and_then(|()| parser.end());
        if let Err(error) = parsed {
            return Err(field_error.unwrap_or_else(|| RowError::BadJson { what: error.to_string() }));
        }
        for (column, seen) in self.columns.iter_mut().zip(&self.seen) {
            if !seen {
                column.push_null()?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.row_count = 0;
        self.columns.iter_mut().map(ColumnBuilder::finish).collect()
    }
}

struct ObjectSeed<'a> {
    columns: &'a mut [ColumnBuilder],
    seen: &'a mut [bool],
    strict: bool,
    /// The error of a field: serde's own error type would lose which one.
    error: &'a mut Option<RowError>,
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        // Most producers write their fields in one order: the search starts behind the last field found.
        let mut next = 0;
        while let Some(found) = map.next_key_seed(KeySeed { columns: self.columns, next })? {
            let Some(index) = found else {
                if self.strict {
                    return Err(de::Error::custom("a field that the schema does not name"));
                }
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if std::mem::replace(&mut self.seen[index], true) {
                return Err(de::Error::custom(format!("field {} comes twice", self.columns[index].name())));
            }
            map.next_value_seed(FieldSeed { column: &mut self.columns[index], error: self.error })?;
            next = index + 1;
        }
        Ok(())
    }
}

/// Finds the column that a key names, without keeping the key.
struct KeySeed<'a> {
    columns: &'a [ColumnBuilder],
    next: usize,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Option<usize>;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
        let (before, behind) = self.columns.split_at(self.next);
        let behind = behind.iter().position(|column| column.name() == key).map(|index| index + self.next);
        Ok(behind.or_else(|| before.iter().position(|column| column.name() == key)))
    }
}

/// Appends one value to its column.
struct FieldSeed<'a> {
    column: &'a mut ColumnBuilder,
    error: &'a mut Option<RowError>,
}

impl FieldSeed<'_> {
    fn keep<E: de::Error>(error: &mut Option<RowError>, result: Result<(), RowError>) -> Result<(), E> {
        result.map_err(|row_error| {
            let shown = de::Error::custom(&row_error);
            *error = Some(row_error);
            shown
        })
    }
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a plain value in column {}", self.column.name())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        Self::keep(self.error, self.column.push_bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        Self::keep(self.error, self.column.push_int(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        Self::keep(self.error, self.column.push_float(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<(), E> {
        Self::keep(self.error, self.column.push_string(value))
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Self::keep(self.error, self.column.push_null())
    }
}
