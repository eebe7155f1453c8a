//! Where a registry is, and how long it is waited for.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use sharestream_http::SecretSource;

/// Settings of an [`HttpRegistry`](crate::HttpRegistry).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistrySettings {
    /// Addresses of one registry, `http://` or `https://`, asked in turn until one answers. Since 0.2.
    pub urls: Vec<String>,
    /// Who asks (HTTP Basic). Default nobody. Since 0.2.
    pub user: Option<RegistryUser>,
    /// PEM file of the authorities to trust; `None`: those of the operating system. Since 0.2.
    pub ca_file: Option<PathBuf>,
    /// Longest time of one request. Default 5 s; above zero. Since 0.2.
    pub request_timeout: Duration,
    /// How long a question is asked again before it fails, and with it the attempt. Default 30 s; at least `request_timeout`.
    /// Since 0.2.
    pub patience: Duration,
}

/// A user of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryUser {
    /// Name.
    pub name: String,
    /// Where the password is kept; read for every request.
    pub password: SecretSource,
}

/// A fault of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryFault {
    /// Name of the setting.
    pub setting: &'static str,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for RegistryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.message)
    }
}

impl RegistrySettings {
    /// The registry at these addresses, all else by default.
    pub fn new(urls: Vec<String>) -> Self {
        RegistrySettings {
            urls,
            user: None,
            ca_file: None,
            request_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(30),
        }
    }

    /// Everything that is wrong by itself.
    pub fn faults(&self) -> Vec<RegistryFault> {
        let mut faults = Vec::new();
        let mut add = |setting, message: String| faults.push(RegistryFault { setting, message });
        if self.urls.is_empty() {
            add("url", "name at least one address, for example http://registry:8081".to_owned());
        }
        for text in &self.urls {
            match Url::parse(text) {
                // Whoever wrote a password here must not find it in a log as well: the text is not shown.
                Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                    add(
                        "url",
                        "user and password do not belong into the address: use username and password_file"
                            .to_owned(),
                    );
                }
                Ok(url) if !matches!(url.scheme(), "http" | "https") => {
                    add("url", format!("'{text}' begins with neither http:// nor https://"));
                }
                Ok(url) if url.query().is_some() || url.fragment().is_some() => {
                    add("url", format!("'{text}' has something behind its path"));
                }
                Ok(_) => {}
                Err(error) => add("url", format!("'{text}' is no address ({error})")),
            }
        }
        if self.request_timeout == Duration::ZERO {
            add("timeout", "it is zero, it must be above zero".to_owned());
        }
        if self.patience < self.request_timeout {
            add("patience", "it is shorter than the timeout of one request".to_owned());
        }
        faults
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.urls.iter().any(|url| url.starts_with("https://"))
    }
}
