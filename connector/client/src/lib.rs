//! Kafka client: share consumer, transaction session, batch writers, admin.
