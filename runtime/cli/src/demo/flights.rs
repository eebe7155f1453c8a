//! The demo's data: every flight that left New York in 2013, keyed by carrier.

use std::io::Read;

use anyhow::Context;
use flate2::read::GzDecoder;
use sharestream_client::Producer;

/// The flights and the job are part of the program: the demo needs no file of the checkout.
const DATA: &[u8] = include_bytes!("../../../../examples/data/flights.csv.gz");
/// The demo's job.
pub(crate) const JOB: &str = include_str!("../../../../examples/flights/job.toml");
/// Column of the carrier, from 0.
const CARRIER: usize = 9;

/// All flights, not yet loaded.
pub(crate) struct Flights {
    text: Vec<u8>,
    /// Start of the next line.
    position: usize,
    left: usize,
}

impl Flights {
    /// Unpacks the data; at most `limit` flights.
    pub(crate) fn unpack(limit: Option<usize>) -> anyhow::Result<Self> {
        let mut text = Vec::new();
        GzDecoder::new(DATA).read_to_end(&mut text).context("cannot unpack the flights")?;
        let header = text.iter().position(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let count = text[header..].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
        Ok(Flights { text, position: header, left: limit.map_or(count, |limit| limit.min(count)) })
    }

    /// Flights not yet loaded.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Sends the next `count` flights to `topic` and waits until the broker has them.
    pub(crate) async fn load(
        &mut self,
        producer: &mut Producer,
        topic: &str,
        count: usize,
    ) -> anyhow::Result<()> {
        for _ in 0..count.min(self.left) {
            let rest = &self.text[self.position..];
            let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let line = &rest[..length];
            let carrier = line.split(|byte| *byte == b',').nth(CARRIER);
            producer.send(topic, carrier, Some(line), &[]).await?;
            self.position += length + 1;
            self.left -= 1;
        }
        producer.flush().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_complete() {
        assert_eq!(Flights::unpack(None).unwrap().left(), 336_776);
        assert_eq!(Flights::unpack(Some(10)).unwrap().left(), 10);
    }
}
