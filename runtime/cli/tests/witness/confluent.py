"""An outside witness: librdkafka (through confluent-kafka) against the embedded broker.

Usage: confluent.py BOOTSTRAP TOPIC GROUP

The topic must exist with two partitions, and the group must start at the earliest offset, read committed. Prints one
line for each fact it saw; exits 0 only when every expectation held. None of our client code is involved.
"""

import sys
import time

from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition

BOOTSTRAP, TOPIC, GROUP = sys.argv[1:4]
COUNT = 200


def expect(what, seen, wanted):
    print(f"{what}: {seen}", flush=True)
    if seen != wanted:
        sys.exit(f"{what}: saw {seen}, wanted {wanted}")


def transaction(producer, prefix, commit):
    producer.begin_transaction()
    for number in range(COUNT):
        producer.produce(
            TOPIC,
            key=str(number),
            value=f"{prefix}-{number}",
            partition=number % 2,
            headers=[("n", str(number)), ("n", "again")],
        )
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def read(isolation):
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "witness-reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    partitions = [TopicPartition(TOPIC, index, 0) for index in range(2)]
    consumer.assign(partitions)
    values, ended, deadline = [], set(), time.monotonic() + 30
    while len(ended) < 2 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
            continue
        values.append(message.value().decode())
        assert message.headers() == [("n", message.key()), ("n", b"again")], message.headers()
    consumer.close()
    expect(f"partitions read to their end ({isolation})", len(ended), 2)
    return values


def share(group, wanted):
    consumer = ShareConsumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([TOPIC])
    values, deadline = [], time.monotonic() + 30
    while len(values) < wanted and time.monotonic() < deadline:
        for message in consumer.poll(1):
            if message.error():
                sys.exit(f"share consumer: {message.error()}")
            values.append(message.value().decode())
            consumer.acknowledge(message)
        results = consumer.commit_sync(10)
        failed = {str(tp): str(error) for tp, error in (results or {}).items() if error is not None}
        expect("failed acknowledgements", failed, {})
    extra = [message.value() for message in consumer.poll(1)]
    consumer.close()
    expect("records delivered after all were acknowledged", extra, [])
    return values


def main():
    producer = Producer(
        {"bootstrap.servers": BOOTSTRAP, "transactional.id": "witness", "transaction.timeout.ms": 30000}
    )
    producer.init_transactions(30)
    transaction(producer, "aborted", commit=False)
    transaction(producer, "first", commit=True)
    transaction(producer, "second", commit=True)
    plain = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    plain.produce(TOPIC, key="0", value="plain", partition=0, headers=[("n", "0"), ("n", "again")])
    expect("messages left in the producer", plain.flush(30), 0)

    committed = sorted(
        [f"{prefix}-{number}" for prefix in ("first", "second") for number in range(COUNT)] + ["plain"]
    )
    everything = sorted(committed + [f"aborted-{number}" for number in range(COUNT)])
    expect("read committed is exactly the committed records", sorted(read("read_committed")) == committed, True)
    expect("read uncommitted is everything", sorted(read("read_uncommitted")) == everything, True)
    shared = share(GROUP, len(committed))
    expect("the share group got each committed record once", sorted(shared) == committed, True)


main()
