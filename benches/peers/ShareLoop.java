import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The best that Kafka's own clients can do with a share group and transactional output: commit, then acknowledge.
 * Not atomic: a crash between the two doubles records.
 */
public final class ShareLoop {
    public static void main(String[] arguments) throws Exception {
        Bench bench = new Bench(arguments);
        bench.startAtEarliest();
        bench.run("java-share-loop", ShareLoop::loop);
    }

    private static void loop(Bench bench, int thread) throws Exception {
        Properties settings = bench.consumer();
        settings.put("share.acknowledgement.mode", "explicit");
        String output = bench.text("output");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        ByteArraySerializer raw = new ByteArraySerializer();
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings, bytes, bytes);
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
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    producer.send(new ProducerRecord<>(output, record.key(), record.value()));
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
                producer.flush();
                long before = System.nanoTime();
                producer.commitTransaction();
                long commit = System.nanoTime() - before;
                consumer.commitAsync();
                bench.committed(records.count(), commit);
            }
            consumer.commitSync();
        }
    }
}
