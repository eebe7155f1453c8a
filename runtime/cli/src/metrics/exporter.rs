//! The facts as text in Prometheus' exposition format (version 0.0.4).

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use sharestream_base::Clock;
use sharestream_core::{JobControl, JobState};

use super::definitions::{Definition, Kind, Metric};
use super::offsets::Offsets;
use super::values::{Facts, Sample, Value, samples};

/// What the server asks.
#[derive(Debug)]
pub(crate) struct Exporter {
    job: String,
    instance: String,
    control: JobControl,
    clock: Clock,
    offsets: Arc<Mutex<Offsets>>,
}

impl Exporter {
    /// An exporter of the job behind `control`; no offsets are known.
    pub(crate) fn new(job: &str, instance: &str, control: JobControl, clock: Clock) -> Self {
        let (job, instance) = (job.to_owned(), instance.to_owned());
        Exporter { job, instance, control, clock, offsets: Arc::default() }
    }

    /// Where offsets are to be put.
    pub(crate) fn offsets(&self) -> Arc<Mutex<Offsets>> {
        self.offsets.clone()
    }

    /// Where the job is.
    pub(crate) fn state(&self) -> JobState {
        self.control.status().borrow().state
    }

    /// All metrics as text. Errors: the text could not be written.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let status = self.control.status().borrow().clone();
        let (metrics, wall_ms) = (self.control.metrics(), self.clock.wall_ms());
        encode(&self.job, &self.instance, Facts { status, metrics, offsets, wall_ms })
    }
}

/// `facts` of this job as text.
pub(crate) fn encode(job: &str, instance: &str, facts: Facts) -> Result<String, fmt::Error> {
    let labels = [("job", job), ("instance", instance)];
    let labels = labels.into_iter().map(|(name, value)| (Cow::from(name), Cow::from(value.to_owned())));
    let mut registry = Registry::with_labels(labels);
    registry.register_collector(Box::new(facts));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

impl Collector for Facts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in Metric::ALL {
            let Definition { name, kind, labels, help, .. } = metric.definition();
            // The library adds the suffix of the kind.
            let (name, kind) = match kind {
                Kind::Counter => (name.strip_suffix("_total").unwrap_or(name), MetricType::Counter),
                Kind::Info => (name.strip_suffix("_info").unwrap_or(name), MetricType::Info),
                Kind::Gauge => (name, MetricType::Gauge),
                Kind::Histogram => (name, MetricType::Histogram),
            };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for Sample { labels: values, value } in samples(*metric, self) {
                let labels: Vec<(&str, String)> = labels.iter().copied().zip(values).collect();
                write(&mut family, &labels, &value)?;
            }
        }
        Ok(())
    }
}

fn write(
    family: &mut MetricEncoder<'_>,
    labels: &Vec<(&str, String)>,
    value: &Value<'_>,
) -> Result<(), fmt::Error> {
    match value {
        Value::Info => family.encode_info(labels),
        Value::Counter(count) => ConstCounter::new(*count).encode(family.encode_family(labels)?),
        Value::Gauge(value) => ConstGauge::new(*value).encode(family.encode_family(labels)?),
        Value::Histogram(histogram) => {
            let buckets: Vec<(f64, u64)> = histogram.buckets().collect();
            let mut family = family.encode_family(labels)?;
            family.encode_histogram::<NoLabelSet>(histogram.sum(), histogram.count(), &buckets, None)
        }
    }
}
