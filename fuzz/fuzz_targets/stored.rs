//! Stored records of the share coordinator and of the transaction coordinator.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sharestream_broker::fuzzing;
use sharestream_fuzz::{Parts, bounded};

fuzz_target!(|data: &[u8]| {
    let mut parts = Parts(data);
    let kind = parts.byte();
    let key = parts.part();
    let value = parts.0;
    bounded(data.len(), 64, 64 * 1024, || match kind % 3 {
        0 => fuzzing::share_state_record(key, Some(value)),
        1 => fuzzing::share_state_record(key, None),
        _ => fuzzing::transaction_record(key, value),
    });
});
