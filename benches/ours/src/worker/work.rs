//! What is done for each record.

use std::hint::black_box;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sharestream_base::Clock;
use sharestream_core::Stream;
use sharestream_core::async_map::{AsyncMap, AsyncMapOptions, AsyncOutcome, CallError};

/// Work for each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Work {
    /// Records pass as they are.
    Nothing,
    /// A wait, as for an answer from outside: it needs no processor.
    Sleep { for_each: Duration, at_once: usize },
    /// The processor is busy, for one record after the other.
    Spin { turns: u32 },
}

impl Work {
    /// Appends it.
    pub(crate) fn done_by(self, source: Stream, clock: &Clock) -> Stream {
        match self {
            Work::Nothing => source,
            Work::Sleep { for_each, at_once } => {
                let clock = clock.clone();
                let map = AsyncMap::from_fn("sleep", [], move |_row| {
                    let clock = clock.clone();
                    async move {
                        clock.sleep(for_each).await;
                        Ok::<_, CallError>(AsyncOutcome::Columns(Vec::new()))
                    }
                });
                source.async_map(map.options(AsyncMapOptions::default().with_concurrency(at_once)))
            }
            Work::Spin { turns } => {
                let map = AsyncMap::from_fn("spin", [], move |_row| async move {
                    black_box(spin(turns));
                    Ok::<_, CallError>(AsyncOutcome::Columns(Vec::new()))
                });
                // One at a time: a processor does no more.
                source.async_map(map.options(AsyncMapOptions::default().with_concurrency(1)))
            }
        }
    }
}

/// Turns that the compiler cannot leave out: each needs the one before.
fn spin(turns: u32) -> u64 {
    (0..turns).fold(1, |number: u64, _| number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1))
}
