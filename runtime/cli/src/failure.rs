//! Errors as a user reads them: what happened and why in one line, what to do about it in a second.

use std::fmt::Write as _;

use sharestream_base::ErrorKind;

use crate::exit::Exit;
use crate::job_file::JobFileError;

/// The text of a failure and the exit code that belongs to it.
pub(crate) struct Failure {
    /// What happened and why.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
    /// Kind, where one of our crates gave one.
    pub(crate) kind: Option<ErrorKind>,
    /// Exit code.
    pub(crate) exit: Exit,
}

/// Context of an error about a file that the user named.
#[derive(Debug)]
pub(crate) struct UnreadableInput(pub(crate) String);

impl std::fmt::Display for UnreadableInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the user asked for is not there, or not to be touched: wrong usage, in words of its own.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Refused {
    /// The error that a command returns.
    pub(crate) fn error(text: String) -> anyhow::Error {
        anyhow::Error::msg(Refused(text))
    }
}

/// Judges an error by the first of its causes that has a kind.
pub(crate) fn judge(error: &anyhow::Error) -> Failure {
    if error.downcast_ref::<JobFileError>().is_some() {
        return Failure { message: error.to_string(), hint: None, kind: None, exit: Exit::Usage };
    }
    let kind = error.chain().find_map(kind_of);
    let message = chain_text(error);
    let is_of_store = error.chain().any(|cause| cause.is::<sharestream_checkpoints::Error>());
    let hint = hint(kind, &message, is_of_store);
    let is_unreadable = error.downcast_ref::<UnreadableInput>().is_some();
    let is_refused = error.downcast_ref::<Refused>().is_some();
    let exit = if is_unreadable || is_refused || kind == Some(ErrorKind::InvalidInput) {
        Exit::Usage
    } else {
        Exit::Failed
    };
    Failure { message, hint, kind, exit }
}

/// Prints a failure on standard error.
pub(crate) fn print(failure: &Failure) {
    eprintln!("error: {}", failure.message);
    if let Some(hint) = &failure.hint {
        eprintln!("hint: {hint}");
    }
}

fn kind_of(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
    if let Some(error) = cause.downcast_ref::<sharestream_core::Error>() {
        return Some(error.kind());
    }
    if let Some(error) = cause.downcast_ref::<sharestream_client::Error>() {
        return Some(error.kind());
    }
    if let Some(error) = cause.downcast_ref::<sharestream_broker::Error>() {
        return Some(error.kind());
    }
    cause.downcast_ref::<sharestream_checkpoints::Error>().map(|error| error.kind())
}

/// The causes, outermost first, without those that only repeat what was said.
fn chain_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        let _ = write!(text, "{cause}");
    }
    text
}

fn hint(kind: Option<ErrorKind>, message: &str, is_of_store: bool) -> Option<String> {
    let lower = message.to_lowercase();
    let is_unreachable = [
        "connection refused",
        "cannot reach",
        "cannot be reached",
        "no broker",
        "unreachable",
        "not reachable",
    ]
    .iter()
    .any(|word| lower.contains(word));
    if is_of_store && kind == Some(ErrorKind::Retry) {
        let text = "the checkpoint store gives no answer: is its server running, and is `endpoint` in \
                    [checkpoint.options] (or the environment) right? Nothing is lost";
        return Some(text.to_owned());
    }
    if is_unreachable {
        return Some(
            "is a broker running there? `sharestream broker` starts one; --brokers names another".to_owned(),
        );
    }
    if lower.contains("non_empty_group") {
        return Some("stop its jobs and consumers first; `sharestream group describe` names them".to_owned());
    }
    if lower.contains("group_id_not_found") {
        return Some("`sharestream group list` shows the share groups that there are".to_owned());
    }
    if lower.contains("unknown_topic") {
        return Some(
            "`sharestream topic list` shows the topics, `sharestream topic create` makes one".to_owned(),
        );
    }
    if lower.contains("in use") {
        return Some("another program listens there; --port 0 takes a free port".to_owned());
    }
    match kind? {
        ErrorKind::Fenced => {
            Some("a newer copy of this job is running; give each copy its own job.instance, or stop one".to_owned())
        }
        ErrorKind::Corrupt => Some(
            "stored state contradicts the log; nothing was changed. Look at the topics and the checkpoint folder \
             named above before starting again"
                .to_owned(),
        ),
        ErrorKind::Indeterminate => {
            Some("start the job again: recovery finds out what was committed; nothing is lost".to_owned())
        }
        ErrorKind::Retry | ErrorKind::Abort => {
            Some("nothing is lost: records that were not committed are still in the group".to_owned())
        }
        ErrorKind::Bug => Some("this is a defect of sharestream; please report it with the output of -vv".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_failure_names_its_causes_once_and_says_what_to_do() {
        let cause = sharestream_core::Error::new(ErrorKind::Fenced, "job epoch 3 was taken over by 4")
            .with_source("job epoch 3 was taken over by 4");
        let error = Err::<(), _>(cause).context("job late/main").unwrap_err();
        let failure = judge(&error);
        assert_eq!(failure.message, "job late/main: job epoch 3 was taken over by 4");
        assert_eq!((failure.exit, failure.kind), (Exit::Failed, Some(ErrorKind::Fenced)));
        assert!(failure.hint.unwrap().contains("job.instance"));
    }

    #[test]
    fn wrong_input_is_wrong_usage() {
        let error =
            anyhow::Error::new(sharestream_core::Error::new(ErrorKind::InvalidInput, "no such column"));
        assert_eq!(judge(&error).exit, Exit::Usage);
    }

    #[test]
    fn a_refusal_is_wrong_usage_in_its_own_words() {
        let failure = judge(&Refused::error("there is no share group 'g'".to_owned()));
        assert_eq!((failure.message.as_str(), failure.exit), ("there is no share group 'g'", Exit::Usage));
    }

    #[test]
    fn a_store_that_is_not_there_is_not_taken_for_a_broker() {
        let cause = sharestream_checkpoints::Error::new(ErrorKind::Retry, "s3://b/x: Connection refused");
        let hint = judge(&anyhow::Error::new(cause)).hint.unwrap();
        assert!(hint.contains("checkpoint store") && !hint.contains("broker"), "{hint}");
    }

    #[test]
    fn a_broker_that_is_not_there_is_hinted_at() {
        let error = anyhow::anyhow!("connect to 127.0.0.1:9092: Connection refused (os error 111)");
        assert!(judge(&error).hint.unwrap().contains("sharestream broker"));
    }
}
