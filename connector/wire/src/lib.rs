//! Kafka protocol layer shared by client and broker: frames, versions, messages, record batches. No I/O.
