//! Metrics of a run over HTTP: `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever starts processes.
//!
//! ```text
//! runtime ---- counts ----> JobControl ---\
//! brokers <--- asked for -- OffsetWatch --- offsets --> Facts --(definitions, values)--> text --> server
//! ```
//!
//! Nothing is pushed: a scrape reads what is there. Every metric is defined once, in `definitions`; the page
//! `docs/metrics.md` is written from there.

mod definitions;
mod exporter;
mod offsets;
#[cfg(test)]
mod page;
mod server;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use anyhow::Context;
use sharestream_base::{Env, HostPort};
use sharestream_client::Client;
use sharestream_core::JobControl;

use crate::failure::Refused;
use crate::job_file::JobFile;
use exporter::Exporter;
use offsets::OffsetWatch;
use server::Server;

/// Serves the metrics of one run until it is dropped.
pub(crate) struct Monitoring {
    exporter: Arc<Exporter>,
    server: Server,
    /// Asks the brokers for offsets, once it is known how to reach them.
    watch: Option<OffsetWatch>,
}

impl Monitoring {
    /// Listens where the job file says. `None` where it does not say. Errors: the address cannot be listened on.
    pub(crate) async fn start(
        env: &Env,
        job: &JobFile,
        control: &JobControl,
    ) -> anyhow::Result<Option<Self>> {
        let Some(address) = &job.metrics.listen else { return Ok(None) };
        let exporter = Arc::new(Exporter::new(&job.job, &job.instance, control.clone(), env.clock.clone()));
        let server = Server::start(env, address, exporter.clone()).await.with_context(|| {
            Refused(format!(
                "cannot listen on {address} for metrics; choose another address with --metrics-listen or metrics.listen"
            ))
        })?;
        Ok(Some(Monitoring { exporter, server, watch: None }))
    }

    /// Where it listens, with the real port.
    pub(crate) fn address(&self) -> &HostPort {
        self.server.address()
    }

    /// From now on the brokers are asked for the offsets of the job's group.
    pub(crate) fn watch_offsets(&mut self, env: &Env, client: Client, job: &JobFile) {
        let offsets = self.exporter.offsets();
        self.watch = Some(OffsetWatch::start(env, client, job, offsets));
    }
}
