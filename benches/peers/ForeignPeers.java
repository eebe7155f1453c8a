import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Java clients for the tests of the embedded broker. Each command goes through one client from end to end and prints
 * what it saw, one fact a line with tabs between its parts.
 *
 * <p>{@code java ForeignPeers transactions|share|admin|prepare BOOTSTRAP}
 */
public final class ForeignPeers {
    private static final long LIMIT_MS = 20_000;
    private static final Duration POLL = Duration.ofMillis(200);
    /** How long is waited for what should not come. */
    private static final long QUIET_MS = 700;

    private final String bootstrap;
    private final Admin admin;

    private ForeignPeers(String bootstrap, Admin admin) {
        this.bootstrap = bootstrap;
        this.admin = admin;
    }

    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[1]))) {
            ForeignPeers peers = new ForeignPeers(args[1], admin);
            switch (args[0]) {
                case "transactions" -> peers.transactions();
                case "share" -> peers.share();
                case "admin" -> peers.admin();
                case "prepare" -> peers.prepare();
                default -> throw new IllegalArgumentException("unknown command " + args[0]);
            }
        }
    }

    private static void say(Object... parts) {
        List<String> texts = new ArrayList<>();
        for (Object part : parts) {
            texts.add(String.valueOf(part));
        }
        System.out.println(String.join("\t", texts));
    }

    private Properties producerSettings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        return settings;
    }

    private Properties consumerSettings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        return settings;
    }

    private void createTopic(String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
    }

    /** The values v-0, v-1 and so on, in turn to each partition. */
    private void fill(String topic, int partitions, int count) {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producerSettings())) {
            for (int n = 0; n < count; n++) {
                producer.send(new ProducerRecord<>(topic, n % partitions, null, "v-" + n));
            }
        }
    }

    /** Transactions that copy records and move a consumer group on: one commits, one aborts, one commits again. */
    private void transactions() throws Exception {
        createTopic("from", 1);
        createTopic("to", 1);
        fill("from", 1, 6);
        TopicPartition partition = new TopicPartition("from", 0);
        Properties reading = consumerSettings();
        reading.put("group.id", "copiers");
        reading.put("enable.auto.commit", "false");
        reading.put("isolation.level", "read_committed");
        Properties writing = producerSettings();
        writing.put("transactional.id", "copier");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading);
            KafkaProducer<String, String> producer = new KafkaProducer<>(writing)) {
            producer.initTransactions();
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            long deadline = System.currentTimeMillis() + LIMIT_MS;
            while (records.size() < 6 && System.currentTimeMillis() < deadline) {
                consumer.poll(POLL).forEach(records::add);
            }
            copy(producer, records.subList(0, 4));
            producer.commitTransaction();
            copy(producer, records.subList(4, 6));
            producer.abortTransaction();
            say("after the abort", consumer.committed(Set.of(partition)).get(partition).offset());
            copy(producer, records.subList(5, 6));
            producer.commitTransaction();
            say("in the end", consumer.committed(Set.of(partition)).get(partition).offset());

            TopicPartition copies = new TopicPartition("to", 0);
            consumer.assign(List.of(copies));
            consumer.seekToBeginning(List.of(copies));
            int seen = 0;
            long end = System.currentTimeMillis() + LIMIT_MS;
            boolean quiet = false;
            while (System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    say("copied", record.offset(), record.value());
                    seen++;
                }
                if (seen >= 5 && !quiet) {
                    quiet = true;
                    end = System.currentTimeMillis() + QUIET_MS;
                }
            }
        }
        Map<TopicPartition, OffsetAndMetadata> listed =
            admin.listConsumerGroupOffsets("copiers").partitionsToOffsetAndMetadata().get();
        listed.forEach((where, offset) -> say("listed", where, offset.offset()));
    }

    // Without a member behind it the group is only named; the other constructor makes one up as well.
    @SuppressWarnings("removal")
    private static void copy(KafkaProducer<String, String> producer, List<ConsumerRecord<String, String>> records) {
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>("to", 0, null, record.value()));
        }
        long next = records.get(records.size() - 1).offset() + 1;
        producer.sendOffsetsToTransaction(Map.of(new TopicPartition("from", 0), new OffsetAndMetadata(next)),
            new ConsumerGroupMetadata("copiers"));
    }

    private KafkaShareConsumer<String, String> shareConsumer(String group, String mode, String topic) {
        Properties settings = consumerSettings();
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", mode);
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings);
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    private void fromTheBeginning(String group) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        Collection<AlterConfigOp> operations = List.of(new AlterConfigOp(
            new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get();
    }

    /** A topic of three partitions with ten records each, and groups of the tools that begin at its beginning. */
    private void prepare() throws Exception {
        createTopic("tools", 3);
        fill("tools", 3, 30);
        fromTheBeginning("console");
        fromTheBeginning("performance");
    }

    /** The three ways to acknowledge, each in a group of its own on twelve records. */
    private void share() throws Exception {
        createTopic("shared", 3);
        fill("shared", 3, 12);
        // One partition for those that are renewed: what comes from elsewhere meanwhile would wait in the client.
        createTopic("renewed", 1);
        fill("renewed", 1, 12);
        explicit();
        implicit();
        renew();
    }

    private void explicit() throws Exception {
        fromTheBeginning("explicit");
        try (KafkaShareConsumer<String, String> consumer = shareConsumer("explicit", "explicit", "shared")) {
            int ended = 0;
            long deadline = System.currentTimeMillis() + LIMIT_MS;
            while (ended < 12 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    int kind = Integer.parseInt(record.value().substring(2)) % 4;
                    short delivery = record.deliveryCount().orElse((short) -1);
                    AcknowledgeType type = kind == 1 && delivery == 1 ? AcknowledgeType.RELEASE
                        : kind == 2 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT;
                    consumer.acknowledge(record, type);
                    say("explicit", record.partition(), record.value(), delivery, type);
                    ended += type == AcknowledgeType.RELEASE ? 0 : 1;
                }
                commit(consumer);
            }
        }
        nothingIsLeft("explicit", "shared");
    }

    private void implicit() throws Exception {
        fromTheBeginning("implicit");
        try (KafkaShareConsumer<String, String> consumer = shareConsumer("implicit", "implicit", "shared")) {
            int seen = 0;
            long deadline = System.currentTimeMillis() + LIMIT_MS;
            while (seen < 12 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    say("implicit", record.partition(), record.value(), record.deliveryCount().orElse((short) -1));
                    seen++;
                }
            }
            // The next poll accepts what the last one gave.
            consumer.poll(POLL);
        }
        nothingIsLeft("implicit", "shared");
    }

    /** Keeps the records for twice as long as their locks last, then accepts them. */
    private void renew() throws Exception {
        fromTheBeginning("renew");
        try (KafkaShareConsumer<String, String> consumer = shareConsumer("renew", "explicit", "renewed")) {
            long deadline = System.currentTimeMillis() + LIMIT_MS;
            long accept = Long.MAX_VALUE;
            int accepted = 0;
            Map<String, Integer> renewals = new TreeMap<>();
            Set<Short> deliveries = new TreeSet<>();
            while (accepted < 12 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    deliveries.add(record.deliveryCount().orElse((short) -1));
                    boolean last = System.currentTimeMillis() >= accept;
                    consumer.acknowledge(record, last ? AcknowledgeType.ACCEPT : AcknowledgeType.RENEW);
                    renewals.merge(record.value(), last ? 0 : 1, Integer::sum);
                    accepted += last ? 1 : 0;
                }
                commit(consumer);
                if (accept == Long.MAX_VALUE && consumer.acquisitionLockTimeoutMs().isPresent()) {
                    int lock = consumer.acquisitionLockTimeoutMs().get();
                    say("lock", lock);
                    accept = System.currentTimeMillis() + 2L * lock;
                }
                Thread.sleep(200);
            }
            renewals.forEach((value, count) -> say("renewed", value, count));
            say("deliveries", deliveries);
        }
        nothingIsLeft("renew", "renewed");
    }

    private static void commit(KafkaShareConsumer<String, String> consumer) {
        consumer.commitSync().forEach((partition, error) -> error.ifPresent(e -> {
            throw new IllegalStateException(partition + ": " + e, e);
        }));
    }

    /** Says what another member of the group still gets, and where the group stands. */
    private void nothingIsLeft(String group, String topic) throws Exception {
        try (KafkaShareConsumer<String, String> consumer = shareConsumer(group, "implicit", topic)) {
            long end = System.currentTimeMillis() + QUIET_MS;
            while (System.currentTimeMillis() < end) {
                consumer.poll(POLL).forEach(record -> say(group + "-left", record.value()));
            }
        }
        sayOffsets(group + "-offset", group);
    }

    private void sayOffsets(String title, String group) throws Exception {
        // Decisions reach the coordinator a moment after they were acknowledged.
        Thread.sleep(200);
        Map<String, String> lines = new TreeMap<>();
        admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(group).get()
            .forEach((partition, info) ->
                lines.put(partition.toString(), info == null ? "none" : String.valueOf(info.startOffset())));
        lines.forEach((partition, offsets) -> say(title, partition, offsets));
    }

    private void admin() throws Exception {
        admin.describeFeatures().featureMetadata().get().finalizedFeatures()
            .forEach((name, range) -> say("feature", name, range.maxVersionLevel()));
        createTopic("administered", 2);
        say("topic", admin.describeTopics(List.of("administered")).allTopicNames().get().get("administered")
            .partitions().size());
        fill("administered", 2, 10);
        fromTheBeginning("group");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, "group");
        say("config", admin.describeConfigs(List.of(resource)).all().get().get(resource)
            .get("share.auto.offset.reset").value());
        try (KafkaShareConsumer<String, String> consumer = shareConsumer("group", "implicit", "administered")) {
            int seen = 0;
            long deadline = System.currentTimeMillis() + LIMIT_MS;
            while (seen < 10 && System.currentTimeMillis() < deadline) {
                seen += consumer.poll(POLL).count();
            }
            // The next poll accepts what the last one gave.
            consumer.poll(POLL);
            describe("with a member");
        }
        describe("without");
        sayGroups();
        sayOffsets("consumed", "group");
        admin.alterShareGroupOffsets("group", Map.of(new TopicPartition("administered", 0), 2L)).all().get();
        sayOffsets("altered", "group");
        admin.deleteShareGroupOffsets("group", Set.of("administered")).all().get();
        sayOffsets("deleted", "group");
        admin.deleteShareGroups(List.of("group")).all().get();
        sayGroups();
        admin.deleteTopics(List.of("administered")).all().get();
        say("topics", new TreeSet<>(admin.listTopics().names().get()));
    }

    private void describe(String when) throws Exception {
        ShareGroupDescription group = admin.describeShareGroups(List.of("group")).all().get().get("group");
        Optional<Integer> assigned =
            group.members().stream().map(member -> member.assignment().topicPartitions().size()).findFirst();
        say("described", when, group.groupState(), group.members().size(), assigned.orElse(0));
    }

    private void sayGroups() throws Exception {
        List<String> names = new ArrayList<>();
        for (GroupListing listing : admin.listGroups(ListGroupsOptions.forShareGroups()).all().get()) {
            names.add(listing.groupId() + " " + listing.type().orElse(null) + " "
                + listing.groupState().orElse(null));
        }
        say("groups", names);
    }
}
