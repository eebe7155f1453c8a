//! What a registry answers, told from what anything else does that listens there.

use reqwest::StatusCode;
use serde::Deserialize;
use sharestream_kafka::formats::{AvroSchema, WriterSchema};

/// Characters of a message that an error shows.
const SHOWN_CHARS_MAX: usize = 400;

/// The end of one request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// 2xx, and its JSON.
    Yes(Vec<u8>),
    /// The registry says no, and why.
    No(Refusal),
    /// Nobody who could know has answered: to be asked again.
    None(String),
}

/// An error of the registry's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl Refusal {
    /// Whether it says that there is no such schema, version or subject.
    pub(crate) fn is_missing(&self) -> bool {
        self.status == 404
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self.status, 401 | 403)
    }
}

#[derive(Deserialize)]
struct ErrorBody {
    error_code: i64,
    message: Option<String>,
}

/// Judges a response.
pub(crate) fn judge(status: StatusCode, body: Vec<u8>) -> Answer {
    if status.is_success() {
        return Answer::Yes(body);
    }
    let told: Option<ErrorBody> = serde_json::from_slice(&body).ok();
    let message = || match told.as_ref().and_then(|told| told.message.as_deref()) {
        Some(text) => format!("status {status}: {}", shown(text)),
        None => format!("status {status}"),
    };
    let code = told.as_ref().map_or(0, |told| told.error_code);
    let is_own = match status.as_u16() {
        // A proxy, or a wrong path in the address, says 404 as well. That must not make bad records of all.
        404 => (40_400..=40_499).contains(&code),
        409 | 422 | 401 | 403 => true,
        _ => false,
    };
    match is_own {
        true => Answer::No(Refusal { status: status.as_u16(), message: message() }),
        false => Answer::None(message()),
    }
}

fn shown(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(SHOWN_CHARS_MAX).collect()
}

/// A schema as `GET /schemas/ids/{id}` and `GET /subjects/{subject}/versions/{version}` give it.
#[derive(Debug, Deserialize)]
pub(crate) struct SchemaBody {
    pub(crate) schema: String,
    #[serde(rename = "schemaType")]
    schema_type: Option<String>,
    #[serde(default)]
    references: Vec<serde_json::Value>,
}

impl SchemaBody {
    /// Why it is of no use to us.
    pub(crate) fn fault(&self) -> Option<String> {
        match self.schema_type.as_deref() {
            None | Some("AVRO") => {}
            Some(other) => return Some(format!("it is of type {}, not AVRO", shown(other))),
        }
        if !self.references.is_empty() {
            return Some("it has references to other schemas, which are not followed".to_owned());
        }
        None
    }

    pub(crate) fn into_writer(self) -> WriterSchema {
        if let Some(fault) = self.fault() {
            return WriterSchema::Missing(fault);
        }
        match AvroSchema::parse(&self.schema) {
            Ok(schema) => WriterSchema::Known(std::sync::Arc::new(schema)),
            Err(fault) => WriterSchema::Missing(format!("it is no Avro schema: {fault}")),
        }
    }
}

/// What a registration or a look-up gives.
#[derive(Debug, Deserialize)]
pub(crate) struct IdBody {
    pub(crate) id: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, body: &str) -> Answer {
        judge(StatusCode::from_u16(status).unwrap(), body.as_bytes().to_vec())
    }

    #[test]
    fn only_the_registry_itself_says_that_a_schema_is_missing() {
        let missing = judged(404, r#"{"error_code":40403,"message":"Schema 7 not found"}"#);
        let Answer::No(refusal) = missing else { panic!("{missing:?}") };
        assert!(refusal.is_missing());
        assert_eq!(refusal.message, "status 404 Not Found: Schema 7 not found");
        for (status, body) in [
            (404, "<html>not here</html>"),
            (404, r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#),
            (500, r#"{"error_code":50001,"message":"store"}"#),
            (503, ""),
            (429, ""),
            (302, ""),
        ] {
            assert!(matches!(judged(status, body), Answer::None(_)), "{status} {body}");
        }
        assert!(matches!(judged(409, r#"{"error_code":409,"message":"incompatible"}"#), Answer::No(_)));
    }

    #[test]
    fn a_schema_that_is_none_of_ours_is_missing_with_the_reason() {
        let why = |json: &str| match serde_json::from_str::<SchemaBody>(json).unwrap().into_writer() {
            WriterSchema::Missing(why) => why,
            WriterSchema::Known(schema) => panic!("{schema:?}"),
        };
        assert_eq!(why(r#"{"schema":"x","schemaType":"PROTOBUF"}"#), "it is of type PROTOBUF, not AVRO");
        assert!(why(r#"{"schema":"{}","references":[{"name":"a"}]}"#).contains("references"));
        assert!(why(r#"{"schema":"{}"}"#).contains("no Avro schema"));
        let good: SchemaBody = serde_json::from_str(r#"{"schema":"\"int\"","schemaType":"AVRO"}"#).unwrap();
        assert!(matches!(good.into_writer(), WriterSchema::Known(_)));
    }
}
