//! The client that everything which speaks HTTP begins with.

use std::path::PathBuf;

use reqwest::{Client, ClientBuilder};
use sharestream_base::{Clock, run_blocking};

use crate::tls;

/// A client that trusts the authorities of `ca_file`, or of the system, and does nothing that was not asked for: no redirects, no
/// proxies of the environment, HTTP/1.1.
///
/// # Errors
/// One sentence: what is wrong with the authorities.
///
/// # Cancel safety
/// Cancel safe.
pub async fn client_builder(
    ca_file: Option<PathBuf>,
    is_secure: bool,
    clock: &Clock,
) -> Result<ClientBuilder, String> {
    let clock = clock.clone();
    let tls =
        run_blocking("http-authorities", move || tls::config(ca_file.as_deref(), is_secure, clock)).await;
    let tls = tls.map_err(|panic| panic.to_string()).and_then(|tls| tls)?;
    Ok(Client::builder()
        .use_preconfigured_tls(tls)
        .http1_only()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .user_agent(concat!("sharestream/", env!("CARGO_PKG_VERSION"))))
}
