//! Texts with the values of columns in them.

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use crate::values::{self, ValueError};

/// A text with places for columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Column { name: String, is_json: bool },
}

impl Template {
    /// Errors: what is wrong with `text`, in words.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..];
            if let Some(after) = brace.strip_prefix("{{").or_else(|| brace.strip_prefix("}}")) {
                literal.push_str(&brace[..1]);
                rest = after;
                continue;
            }
            let Some(inner) = brace.strip_prefix('{') else {
                return Err("a '}' stands alone; write '}}' for a brace".to_owned());
            };
            let end =
                inner.find('}').ok_or_else(|| "a '{' is never closed; write '{{' for a brace".to_owned())?;
            let place = &inner[..end];
            let (name, is_json) = match place.strip_suffix(":json") {
                Some(name) => (name, true),
                None => (place, false),
            };
            if name.is_empty() || name.contains(['{', '"', '\n']) {
                return Err(format!("'{{{place}}}' names no column; write '{{{{' and '}}}}' for braces"));
            }
            pieces.push(Piece::Text(std::mem::take(&mut literal)));
            pieces.push(Piece::Column { name: name.to_owned(), is_json });
            rest = &inner[end + 1..];
        }
        literal.push_str(rest);
        pieces.push(Piece::Text(literal));
        pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
        Ok(Template { pieces })
    }

    /// What stands before the first column.
    pub(crate) fn head(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text,
            Some(Piece::Column { .. }) | None => "",
        }
    }

    /// The columns that it names, and whether as JSON.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&str, bool)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Column { name, is_json } => Some((name.as_str(), *is_json)),
            Piece::Text(_) => None,
        })
    }

    /// The text with `value` in the place of every column.
    pub(crate) fn sample(&self, value: &str) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Column { .. } => value.to_owned(),
        };
        self.pieces.iter().map(piece).collect()
    }

    /// Finds the columns once, so that a row needs no search. Errors: the name of a column that is not there.
    pub(crate) fn bind(&self, schema: &Schema) -> Result<Bound, String> {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => Ok::<_, String>(BoundPiece::Text(text.clone())),
            Piece::Column { name, is_json } => {
                let index = schema.index_of(name).map_err(|_| name.clone())?;
                Ok(BoundPiece::Column { index, is_json: *is_json })
            }
        });
        Ok(Bound { pieces: pieces.collect::<Result<_, _>>()? })
    }
}

/// A template whose columns have been found.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pieces: Vec<BoundPiece>,
}

#[derive(Clone, Debug)]
enum BoundPiece {
    Text(String),
    Column { index: usize, is_json: bool },
}

impl Bound {
    /// The text for a row; `encode` writes what a column holds.
    pub(crate) fn render(
        &self,
        batch: &RecordBatch,
        row: usize,
        encode: impl Fn(&[u8], &mut Vec<u8>),
    ) -> Result<Vec<u8>, ValueError> {
        let mut out = Vec::new();
        for piece in &self.pieces {
            match piece {
                BoundPiece::Text(text) => out.extend_from_slice(text.as_bytes()),
                BoundPiece::Column { index, is_json: true } => values::json(batch, *index, row, &mut out)?,
                BoundPiece::Column { index, is_json: false } => {
                    let text = values::text(batch, *index, row)?;
                    let text = text.ok_or_else(|| ValueError::null(batch, *index))?;
                    encode(&text, &mut out);
                }
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_doubled_and_columns_are_found() {
        let template = Template::parse("{{\"q\": {name:json}}}, {n}").unwrap();
        assert_eq!(template.sample("x"), "{\"q\": x}, x");
        assert_eq!(template.columns().collect::<Vec<_>>(), [("name", true), ("n", false)]);
        assert_eq!(Template::parse("http://h/{a}").unwrap().head(), "http://h/");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [("a}", "stands alone"), ("{a", "never closed"), ("{}", "names no column")] {
            let fault = Template::parse(text).unwrap_err();
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "[{}a:json\"]{0,12}") {
            if let Ok(template) = Template::parse(&text) {
                proptest::prop_assert!(template.sample("").len() <= text.len());
            }
        }
    }
}
