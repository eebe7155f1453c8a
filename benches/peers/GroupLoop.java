import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Exactly once the way it has been since Kafka 0.11: a consumer group whose offsets are in the transaction. */
public final class GroupLoop {
    public static void main(String[] arguments) throws Exception {
        new Bench(arguments).run("java-group-loop", GroupLoop::loop);
    }

    private static void loop(Bench bench, int thread) throws Exception {
        Properties settings = bench.consumer();
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("group.protocol", "consumer");
        String output = bench.text("output");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        ByteArraySerializer raw = new ByteArraySerializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes);
                KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(bench.producer(bench.text("group") + "-" + thread), raw, raw)) {
            producer.initTransactions();
            consumer.subscribe(List.of(bench.text("input")));
            while (!bench.isDone()) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (TopicPartition partition : records.partitions()) {
                    List<ConsumerRecord<byte[], byte[]>> some = records.records(partition);
                    for (ConsumerRecord<byte[], byte[]> record : some) {
                        producer.send(new ProducerRecord<>(output, record.key(), record.value()));
                    }
                    offsets.put(partition, new OffsetAndMetadata(some.get(some.size() - 1).offset() + 1));
                }
                producer.flush();
                long before = System.nanoTime();
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
                bench.committed(records.count(), System.nanoTime() - before);
            }
        }
    }
}
