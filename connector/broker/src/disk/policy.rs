//! When written bytes are forced to the disk.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When what the broker has written is forced to the disk (fsync). Whatever it says, a broker whose process is killed
/// loses nothing that it has answered: the operating system has it. The policy is about the machine's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FsyncPolicy {
    /// Before anything written is answered or read by anybody; many answers share one fsync. The default: nothing that
    /// anybody was told is lost when the machine goes down.
    #[default]
    Always,
    /// Every so often: the last interval may be lost with the machine, and what is left of a transaction may then be
    /// incomplete.
    Interval(Duration),
    /// When a segment is full or the broker ends: the rest is up to the operating system.
    Never,
}

/// The text is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no fsync policy: say always, never or interval:MILLISECONDS (1 to 3600000)")]
pub struct FsyncPolicyError {
    /// What was given.
    pub text: String,
}

impl FromStr for FsyncPolicy {
    type Err = FsyncPolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || FsyncPolicyError { text: text.to_owned() };
        match text {
            "always" => Ok(FsyncPolicy::Always),
            "never" => Ok(FsyncPolicy::Never),
            _ => match text.strip_prefix("interval:").map(str::parse::<u64>) {
                Some(Ok(ms)) if (1..=3_600_000).contains(&ms) => {
                    Ok(FsyncPolicy::Interval(Duration::from_millis(ms)))
                }
                Some(_) | None => Err(refused()),
            },
        }
    }
}

impl TryFrom<String> for FsyncPolicy {
    type Error = FsyncPolicyError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<FsyncPolicy> for String {
    fn from(policy: FsyncPolicy) -> String {
        policy.to_string()
    }
}

impl fmt::Display for FsyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FsyncPolicy::Always => f.write_str("always"),
            FsyncPolicy::Interval(interval) => write!(f, "interval:{}", interval.as_millis()),
            FsyncPolicy::Never => f.write_str("never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_printed_as_it_is_read_and_all_else_is_refused() {
        for text in ["always", "never", "interval:1", "interval:250", "interval:3600000"] {
            assert_eq!(text.parse::<FsyncPolicy>().unwrap().to_string(), text);
        }
        for text in
            ["", "sometimes", "interval", "interval:", "interval:0", "interval:-1", "interval:3600001"]
        {
            assert!(text.parse::<FsyncPolicy>().is_err(), "{text}");
        }
    }
}
