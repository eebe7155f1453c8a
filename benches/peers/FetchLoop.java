import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * What ConsumerPerformance does, with partitions of its own choice instead of a group: the embedded broker serves no members
 * of consumer groups. The clock runs from the first records on, as the tool's own fetch time does not count its join.
 */
public final class FetchLoop {
    public static void main(String[] arguments) throws Exception {
        Bench bench = new Bench(arguments);
        Properties settings = bench.client();
        // Those of ConsumerPerformance.
        settings.put("receive.buffer.bytes", 2097152);
        settings.put("max.partition.fetch.bytes", 1048576);
        settings.put("check.crcs", "false");
        settings.put("enable.auto.commit", false);
        String topic = bench.text("topic");
        long goal = bench.number("records", 1000000);
        long records = 0;
        long bytes = 0;
        long started = System.nanoTime();
        ByteArrayDeserializer raw = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, raw, raw)) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(partition -> new TopicPartition(topic, partition.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long heard = System.nanoTime();
            started = heard;
            while (records < goal) {
                long now = System.nanoTime();
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    records++;
                    bytes += record.value().length;
                    heard = now;
                }
                if (now - heard > 30_000_000_000L) {
                    throw new IllegalStateException("only " + records + " of " + goal + " records came");
                }
            }
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        System.out.printf(
            "{\"name\":\"java-fetch-loop\",\"records\":%d,\"bytes\":%d,\"seconds\":%.3f,\"records_per_second\":%.0f}%n",
            records, bytes, seconds, records / seconds);
    }
}
