import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.config.ConfigResource;

/** What the loops share: settings from the command line, times of commits, one line of JSON at the end. */
final class Bench {
    final Map<String, String> settings = new HashMap<>();
    private final List<long[]> commits = new ArrayList<>();
    private long warmUpRecords;
    private long records;
    private long startedNanos;
    private long endedNanos;

    /** Arguments are pairs: --brokers HOST:PORT --input TOPIC --output TOPIC --group G --warm-up N --records N. */
    Bench(String[] arguments) {
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            settings.put(arguments[i].substring(2), arguments[i + 1]);
        }
    }

    String text(String name) {
        String value = settings.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(settings.getOrDefault(name, Integer.toString(otherwise)));
    }

    /** What every client needs, and the sizes that the Rust side has too. */
    Properties client() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", text("brokers"));
        return properties;
    }

    Properties producer(String transactionalId) {
        Properties properties = client();
        properties.put("transactional.id", transactionalId);
        properties.put("batch.size", 262144);
        properties.put("linger.ms", 5);
        properties.put("buffer.memory", 67108864);
        properties.put("acks", "all");
        return properties;
    }

    Properties consumer() {
        Properties properties = client();
        properties.put("group.id", text("group"));
        properties.put("max.poll.records", number("poll-records", 4000));
        properties.put("fetch.max.bytes", 8388608);
        properties.put("fetch.max.wait.ms", 100);
        return properties;
    }

    /** A share group starts at the end of a topic unless it is told otherwise before it first reads. */
    void startAtEarliest() throws Exception {
        try (Admin admin = Admin.create(client())) {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, text("group"));
            List<AlterConfigOp> changes = new ArrayList<>();
            changes.add(set("share.auto.offset.reset", "earliest"));
            changes.add(set("share.isolation.level", "read_committed"));
            changes.add(set("share.partition.max.record.locks", "4000"));
            admin.incrementalAlterConfigs(Map.of(group, changes)).all().get();
        }
    }

    private static AlterConfigOp set(String key, String value) {
        return new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
    }

    /** A transaction of so many records is committed; whether this thread may stop. The first ones warm up. */
    synchronized boolean committed(long count, long nanos) {
        long now = System.nanoTime();
        if (warmUpRecords < number("warm-up", 500000)) {
            warmUpRecords += count;
            startedNanos = now;
            return false;
        }
        if (records < number("records", 2000000)) {
            records += count;
            endedNanos = now;
            commits.add(new long[] {nanos});
        }
        return isDone();
    }

    synchronized boolean isDone() {
        return records >= number("records", 2000000);
    }

    /** Runs one loop in each thread and prints the result. */
    void run(String name, Loop loop) throws Exception {
        int threads = number("threads", 1);
        List<Thread> running = new ArrayList<>();
        for (int index = 0; index < threads; index++) {
            int number = index;
            Thread thread = new Thread(() -> {
                try {
                    loop.run(this, number);
                } catch (Exception error) {
                    error.printStackTrace();
                    System.exit(1);
                }
            });
            thread.start();
            running.add(thread);
        }
        for (Thread thread : running) {
            thread.join();
        }
        double seconds = (endedNanos - startedNanos) / 1e9;
        long[] sorted = commits.stream().mapToLong(commit -> commit[0]).toArray();
        Arrays.sort(sorted);
        System.out.printf(
            "{\"name\":\"%s\",\"threads\":%d,\"records\":%d,\"seconds\":%.3f,\"records_per_second\":%.0f,"
                + "\"commit_ms_p50\":%.2f,\"commit_ms_p99\":%.2f}%n",
            name, threads, records, seconds, records / seconds, at(sorted, 0.5), at(sorted, 0.99));
    }

    private static double at(long[] sorted, double quantile) {
        return sorted.length == 0 ? 0 : sorted[(int) (quantile * (sorted.length - 1))] / 1e6;
    }

    interface Loop {
        void run(Bench bench, int thread) throws Exception;
    }
}
