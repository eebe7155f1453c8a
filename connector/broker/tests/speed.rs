//! Measurements, run by hand: `cargo test --release -p sharestream-broker --test speed -- --ignored --nocapture`.

mod fixtures;

use std::time::Duration;

use fixtures::{READ_COMMITTED, batch, produce_request, tcp};
use sharestream_base::Env;

#[tokio::test]
#[ignore = "a measurement"]
async fn records_a_second_through_produce_and_fetch() {
    const BATCHES: usize = 1_000;
    const BATCH_RECORDS: usize = 1_000;
    let (broker, mut client) = tcp().await;
    let clock = Env::system().clock;
    let value = "x".repeat(100);
    let values = vec![value.as_str(); BATCH_RECORDS];
    let request = produce_request(None, vec![(0, batch(None, -1, false, &values))], -1);
    let before = clock.now();
    for _ in 0..BATCHES {
        let response = client.call(request.clone(), 9).await;
        assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
    }
    let produced = clock.now() - before;
    let (mut offset, end) = (0, (BATCHES * BATCH_RECORDS) as i64);
    let before = clock.now();
    while offset < end {
        let data = client.fetch(0, offset, READ_COMMITTED).await;
        for batch in sharestream_wire::records::split(data.records.unwrap()) {
            offset = batch.unwrap().header.next_offset();
        }
    }
    let fetched = clock.now() - before;
    let rate = |spent: Duration| end as f64 / spent.as_secs_f64();
    println!("produce {:.0} records/s, fetch {:.0} records/s", rate(produced), rate(fetched));
    broker.shutdown().await;
}

#[tokio::test]
#[ignore = "a measurement"]
async fn time_from_end_to_answer_and_to_visibility() {
    const ROUNDS: usize = 2_000;
    let (broker, mut client) = tcp().await;
    let mut reader = fixtures::Client::connect(&Env::system(), broker.address()).await;
    let clock = Env::system().clock;
    let mut producer = client.init(Some("tx")).await.unwrap();
    let (mut first, mut answered, mut visible) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = clock.now();
        for partition in 0..3 {
            let batch = batch(Some(producer), 0, true, &["x"]);
            assert_eq!(client.produce(12, Some("tx"), partition, batch).await.error_code, 0);
        }
        first.push((clock.now() - begun) / 3);
        let end = client.list_offset(0, -1, 0).await.0;
        reader.send(&fixtures::fetch_request("t", 0, end - 1, READ_COMMITTED, 1_000), 12).await;
        let before = clock.now();
        producer = client.end(5, "tx", producer, true).await.unwrap();
        answered.push(clock.now() - before);
        reader.receive().await.unwrap();
        visible.push(clock.now() - before);
    }
    for (name, mut times) in [("first batch", first), ("end answered", answered), ("visible", visible)] {
        times.sort();
        println!("{name}: p50 {:?}, p99 {:?}", times[ROUNDS / 2], times[ROUNDS * 99 / 100]);
    }
    broker.shutdown().await;
}
