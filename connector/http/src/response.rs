//! What a response says: go on, call again, or give the record up.

use std::time::Duration;

use reqwest::header::{HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use sharestream_base::Clock;
use sharestream_core::async_map::CallError;

/// A service that asks for a longer pause than this is called before.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
/// Characters of a body that an error shows.
const SHOWN_CHARS_MAX: usize = 200;
/// Of the body of a failure so much is read, so that the connection can be used again.
const FAILURE_BYTES_MAX: usize = 16 * 1024;
/// And for so long.
const FAILURE_READ_TIMEOUT: Duration = Duration::from_secs(1);

/// What a status says about another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Answer,
    Again,
    Never,
}

fn verdict(status: StatusCode, accepted: &[u16]) -> Verdict {
    if status.is_success() || accepted.contains(&status.as_u16()) {
        return Verdict::Answer;
    }
    match status.as_u16() {
        408 | 429 => Verdict::Again,
        // Not implemented, and a version of HTTP that is not spoken: so it will be the next time.
        501 | 505 => Verdict::Never,
        500..=599 => Verdict::Again,
        _ => Verdict::Never,
    }
}

/// Reads a response to its end. Errors: as its status and body say.
pub(crate) async fn read(
    mut response: Response,
    accepted: &[u16],
    body_bytes_max: usize,
    clock: &Clock,
) -> Result<(StatusCode, Vec<u8>), CallError> {
    let status = response.status();
    let verdict = verdict(status, accepted);
    if verdict == Verdict::Answer {
        let body = take_body(&mut response, body_bytes_max).await?;
        return Ok((status, body));
    }
    let pause = retry_after(response.headers(), clock.wall_ms());
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).map(shown);
    let piece = clock.timeout(FAILURE_READ_TIMEOUT, failure_piece(&mut response)).await.unwrap_or_default();
    let mut message = format!("status {status}");
    if let Some(location) = location.filter(|_| status.is_redirection()) {
        message += &format!(" to {location} (redirects are not followed)");
    }
    if !piece.is_empty() {
        message += &format!(": {piece}");
    }
    Err(match verdict {
        Verdict::Again => CallError::retry_after(message, pause.unwrap_or_default()),
        Verdict::Answer | Verdict::Never => CallError::permanent(message),
    })
}

async fn take_body(response: &mut Response, bytes_max: usize) -> Result<Vec<u8>, CallError> {
    let too_long =
        || CallError::permanent(format!("the body is longer than {bytes_max} bytes (body_bytes_max)"));
    let length = response.content_length().and_then(|length| usize::try_from(length).ok());
    if length.is_some_and(|length| length > bytes_max) {
        return Err(too_long());
    }
    let mut body = Vec::with_capacity(length.unwrap_or(0));
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        if body.len() + chunk.len() > bytes_max {
            return Err(too_long());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

async fn failure_piece(response: &mut Response) -> String {
    let mut piece = Vec::new();
    let mut byte_count = 0;
    // What goes wrong here is nothing beside what the status says.
    while let Ok(Some(chunk)) = response.chunk().await {
        byte_count += chunk.len();
        if piece.len() < 4 * SHOWN_CHARS_MAX {
            piece.extend_from_slice(&chunk[..chunk.len().min(4 * SHOWN_CHARS_MAX - piece.len())]);
        }
        if byte_count > FAILURE_BYTES_MAX {
            break;
        }
    }
    shown(&String::from_utf8_lossy(&piece))
}

/// A text of a peer, fit for an error: short, one line, nothing that moves a cursor.
fn shown(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS_MAX).collect()
}

/// The request did not get through, or the answer broke off: whether it had an effect is not known, so the next call
/// carries the same key.
pub(crate) fn broken(error: reqwest::Error) -> CallError {
    // The URL may hold what is in the record.
    let error = error.without_url();
    if error.is_builder() {
        return CallError::permanent(format!("no request can be made of it: {}", causes(&error)));
    }
    CallError::transient(causes(&error))
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text += &format!(": {words}");
        }
        source = cause.source();
    }
    text
}

/// The pause that a service asks for: seconds, or a date (RFC 9110 section 10.2.3).
fn retry_after(headers: &HeaderMap, wall_ms: i64) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = if let Ok(seconds) = value.parse::<u64>() {
        Duration::from_secs(seconds)
    } else {
        let at = httpdate::parse_http_date(value).ok()?;
        let at = at.duration_since(std::time::UNIX_EPOCH).ok()?;
        at.saturating_sub(Duration::from_millis(u64::try_from(wall_ms).unwrap_or(0)))
    };
    Some(pause.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn which_statuses_are_called_again() {
        let again: Vec<u16> = (100..600)
            .filter(|code| verdict(StatusCode::from_u16(*code).unwrap(), &[]) == Verdict::Again)
            .collect();
        assert!([408, 429, 500, 502, 503, 504].iter().all(|code| again.contains(code)));
        assert!(!again.contains(&501) && !again.contains(&505));
        assert_eq!(again.iter().filter(|code| **code < 500).count(), 2, "{again:?}");
        let of = |code, accepted: &[u16]| verdict(StatusCode::from_u16(code).unwrap(), accepted);
        assert_eq!(of(204, &[]), Verdict::Answer);
        assert_eq!(of(302, &[]), Verdict::Never);
        assert_eq!(of(404, &[]), Verdict::Never);
        assert_eq!(of(404, &[404]), Verdict::Answer);
        assert_eq!(of(503, &[503]), Verdict::Answer);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            // Sun, 06 Nov 1994 08:49:37 GMT, and a half second.
            retry_after(&headers, 784_111_777_500)
        };
        assert_eq!(of("7"), Some(Duration::from_secs(7)));
        assert_eq!(of("99999999999"), Some(RETRY_AFTER_MAX));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:40 GMT"), Some(Duration::from_millis(2_500)));
        assert_eq!(of("Sunday, 06-Nov-94 08:49:40 GMT"), Some(Duration::from_millis(2_500)));
        assert_eq!(of("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO), "in the past");
        assert_eq!(of("soon"), None);
        assert_eq!(of("-1"), None);
    }

    #[test]
    fn texts_of_a_peer_are_short_and_on_one_line() {
        assert_eq!(shown("a\n\tb\u{1b}[2J c"), "a b[2J c");
        assert_eq!(shown(&"x".repeat(10_000)).len(), SHOWN_CHARS_MAX);
    }
}
