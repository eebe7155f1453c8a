import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java clients for the interoperability tests: each command does one thing with Kafka's own client and prints what
 * it saw, one record a line: partition, offset, key, value and headers, with "-" for null.
 */
public final class Peers {
    public static void main(String[] args) throws Exception {
        String command = args[0];
        String bootstrap = args[1];
        String topic = args[2];
        switch (command) {
            case "produce" -> produce(bootstrap, topic, args[3], Integer.parseInt(args[4]));
            case "transactions" -> transactions(bootstrap, topic, args[3], Integer.parseInt(args[4]));
            case "read" -> read(bootstrap, topic, Integer.parseInt(args[3]));
            case "share" -> share(bootstrap, topic, args[3], Integer.parseInt(args[4]));
            default -> throw new IllegalArgumentException("unknown command " + command);
        }
    }

    private static Properties producerSettings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return settings;
    }

    private static Properties consumerSettings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return settings;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Records in one codec: every tenth a tombstone, all with a header that repeats, once without a value. */
    private static void produce(String bootstrap, String topic, String codec, int count) {
        Properties settings = producerSettings(bootstrap);
        settings.put("compression.type", codec);
        settings.put("linger.ms", "50");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            for (int n = 0; n < count; n++) {
                byte[] value = n % 10 == 0 ? null : bytes(codec + "-" + n);
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, 0, bytes("key-" + n), value);
                record.headers().add("trace", bytes("1")).add("trace", null).add("trace", bytes(""));
                producer.send(record);
            }
        }
    }

    /** Transactions of one record each: those of odd number commit, the others abort. */
    private static void transactions(String bootstrap, String topic, String id, int count) {
        Properties settings = producerSettings(bootstrap);
        settings.put("transactional.id", id);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            for (int n = 0; n < count; n++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, null, bytes("txn-" + n)));
                producer.flush();
                if (n % 2 == 1) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
    }

    /** Everything that a read-committed consumer sees of partition 0, up to its end. */
    private static void read(String bootstrap, String topic, int count) {
        Properties settings = consumerSettings(bootstrap);
        settings.put("isolation.level", "read_committed");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long deadline = System.currentTimeMillis() + 60_000;
            int seen = 0;
            // Once all are there, a moment more shows what should not come.
            long end = deadline;
            while (System.currentTimeMillis() < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    print(record);
                    seen++;
                }
                if (seen >= count && end == deadline) {
                    end = System.currentTimeMillis() + 1_000;
                }
            }
        }
    }

    /** Joins a share group, says so, and accepts each record until the given number has come or standard input ends. */
    private static void share(String bootstrap, String topic, String group, int count) throws Exception {
        Properties settings = consumerSettings(bootstrap);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("client.id", "java-peer");
        settings.put("max.poll.records", "20");
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            System.out.println("started");
            System.out.flush();
            AtomicBoolean ended = new AtomicBoolean();
            Thread watcher = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) {
                        // Only the end counts.
                    }
                } catch (IOException error) {
                    // As good as the end.
                }
                ended.set(true);
            });
            watcher.setDaemon(true);
            watcher.start();
            int seen = 0;
            while (seen < count && !ended.get()) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    print(record);
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    seen++;
                }
                consumer.commitSync().forEach((partition, error) -> error.ifPresent(e -> {
                    throw new IllegalStateException(partition + ": " + e);
                }));
                System.out.flush();
            }
        }
    }

    private static void print(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(header.key() + "=" + text(header.value()));
        }
        System.out.println(record.partition() + "\t" + record.offset() + "\t" + text(record.key()) + "\t"
            + text(record.value()) + "\t" + String.join(",", headers));
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : new String(bytes, StandardCharsets.UTF_8);
    }
}
