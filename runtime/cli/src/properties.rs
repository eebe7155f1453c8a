//! Files of Kafka client properties, as Kafka's own tools take them by `--command-config`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use sharestream_client::SecuritySettings;

/// What such a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Security {
    /// The file, wherever the process is.
    file: PathBuf,
    settings: SecuritySettings,
}

/// The argument of every command that talks to brokers.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CommandConfig {
    /// File of Kafka client properties (security.protocol, sasl.mechanism, ssl.ca.file, ...); counts instead of
    /// [source.security] of a job file
    #[arg(
        long = "command-config",
        value_name = "FILE",
        env = COMMAND_CONFIG_VARIABLE,
        value_parser = read
    )]
    security: Option<Security>,
}

/// Environment variable that stands for the argument.
pub(crate) const COMMAND_CONFIG_VARIABLE: &str = "SHARESTREAM_COMMAND_CONFIG";

impl CommandConfig {
    /// What the file says, if one was given.
    pub(crate) fn given(&self) -> Option<&SecuritySettings> {
        self.security.as_ref().map(|security| &security.settings)
    }

    /// What the file says; without one, that brokers are spoken to in plain text.
    pub(crate) fn settings(&self) -> SecuritySettings {
        self.given().cloned().unwrap_or_default()
    }

    /// The same argument for another process, wherever that starts.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let argument = |security: &Security| format!("--command-config={}", security.file.display());
        self.security.iter().map(argument).collect()
    }
}

/// Reads the file at `path`; relative files in it are relative to its folder.
pub(crate) fn read(path: &str) -> Result<Security, String> {
    let path = Path::new(path);
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read it: {error}"))?;
    let settings = SecuritySettings::from_properties(&parse(&text)?).map_err(|error| error.to_string())?;
    let settings = settings.relative_to(path.parent().unwrap_or(Path::new("")));
    let file = std::path::absolute(path).map_err(|error| format!("cannot tell where it is: {error}"))?;
    Ok(Security { file, settings })
}

/// `name=value` or `name: value` lines; `#` and `!` begin a comment. A line that goes on in the next is refused: none of
/// our settings needs it.
fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut properties = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        // The line itself is not repeated: a misplaced secret would be shown.
        let Some((name, value)) = line.split_once(['=', ':']) else {
            return Err(format!("line {number} is not name=value"));
        };
        if value.ends_with('\\') {
            return Err(format!("line {number} goes on in the next; write it in one"));
        }
        let name = name.trim();
        if properties.insert(name.to_owned(), value.trim().to_owned()).is_some() {
            return Err(format!("line {number} sets {name} again; remove one"));
        }
    }
    Ok(properties)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_kafkas_properties_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client.properties");
        let text = "# to the test cluster\nsecurity.protocol = SASL_SSL\nsasl.mechanism: PLAIN\nsasl.username=a=b\n\n\
                    sasl.password.file=password\nssl.ca.file=/etc/ca.pem\n";
        std::fs::write(&file, text).unwrap();
        let properties = read(file.to_str().unwrap()).unwrap().settings.to_properties();
        assert_eq!(properties["sasl.username"], "a=b");
        assert_eq!(properties["sasl.password.file"], folder.path().join("password").to_str().unwrap());
        assert_eq!(properties["ssl.ca.file"], "/etc/ca.pem");
    }

    #[test]
    fn another_process_is_given_the_same_file_wherever_it_starts() {
        let file = std::path::absolute("some.properties").unwrap();
        let security = Security { file: file.clone(), settings: SecuritySettings::default() };
        let arguments = CommandConfig { security: Some(security) }.arguments();
        assert_eq!(arguments, [format!("--command-config={}", file.display())]);
        assert!(CommandConfig::default().arguments().is_empty());
    }

    #[test]
    fn faults_are_named_by_line_or_key_and_show_no_value() {
        for (text, word) in [
            ("sasl.password=hunter2", "sasl.password.file"),
            ("hunter2", "line 1 is not name=value"),
            ("a=1\na=hunter2", "line 2 sets a again"),
            ("sasl.jaas.config=org \\\n hunter2;", "line 1 goes on"),
            ("sasl.pasword.file=hunter2", "sasl.pasword.file: is not known"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("client.properties");
            std::fs::write(&file, text).unwrap();
            let fault = read(file.to_str().unwrap()).unwrap_err();
            assert!(fault.contains(word) && !fault.contains("hunter2"), "{fault}");
        }
    }
}
