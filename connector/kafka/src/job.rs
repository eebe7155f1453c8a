//! A job's Kafka side: checked once, then asked for its parts by every attempt.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use sharestream_base::Env;
use sharestream_core::commit::{AckMode, CommitProtocol, StepHook};
use sharestream_core::sink::SinkFactory;
use sharestream_core::source::SourceFactory;

use crate::config::KafkaJobConfig;
use crate::error::invalid_input;
use crate::{Error, Result};

/// A connected and checked job.
#[derive(Debug)]
pub struct KafkaJob {
    config: KafkaJobConfig,
    mode: AckMode,
}

impl KafkaJob {
    /// Connects and checks everything that can be checked before the group is joined.
    pub async fn connect(_env: Env, config: KafkaJobConfig) -> Result<KafkaJob> {
        let faults = config.validate();
        if !faults.is_empty() {
            let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
            return Err(invalid_input(format!("job settings: {}", list.join("; "))));
        }
        Ok(KafkaJob { config, mode: AckMode::Transactional })
    }

    /// The settings.
    pub fn config(&self) -> &KafkaJobConfig {
        &self.config
    }

    /// The mode that the job runs with.
    pub fn mode(&self) -> AckMode {
        self.mode
    }

    /// Schema of the rows that the source gives: the user's columns, then the hidden ones.
    pub fn schema(&self) -> SchemaRef {
        self.config.format.schema()
    }

    /// The source.
    pub fn source_factory(&self) -> Arc<dyn SourceFactory> {
        unimplemented!("waits for the client")
    }

    /// The sink.
    pub fn sink_factory(&self) -> Arc<dyn SinkFactory> {
        unimplemented!("waits for the client")
    }

    /// The commit protocol of one attempt. `hook` is called where only the protocol can: between staged leaders and
    /// while EndTxn is on its way.
    pub fn commit_protocol(&self, _hook: Option<StepHook>) -> Box<dyn CommitProtocol> {
        unimplemented!("waits for the client")
    }
}

/// The kind of every failed check.
#[allow(dead_code, reason = "used when the client is there")]
fn check(ok: bool, message: impl FnOnce() -> String) -> Result<(), Error> {
    if ok { Ok(()) } else { Err(invalid_input(message())) }
}
