//! Embedded Kafka-protocol broker for development and tests: share groups, transactions, KIP-1289. Not for production.
