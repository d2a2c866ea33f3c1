package bench;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Load of a server of 5.x clients: ENDPOINT TOPIC GROUP, then a line of input for each run, WORK THREADS WARM_UP_S SECONDS.
 * Work is `send`, or `receive` with acknowledgements. Prints `ready`, and for each run `begin` after the warm-up, a line of
 * JSON with counts at the end of the measured interval, and one with times. The line `probe` sends until a message is
 * accepted, and prints `accepted`.
 */
public final class Load {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final byte[] BODY = "x".repeat(128).getBytes(StandardCharsets.US_ASCII);
    /** Messages of one receive. */
    private static final int BATCH = 16;
    private static final Duration HIDDEN = Duration.ofSeconds(60);
    private static final Duration WAIT = Duration.ofSeconds(5);
    private static final long PROBE_NANOS_MAX = 90_000_000_000L;
    private static final int WARM_UP = 0, MEASURED = 1, OVER = 2;

    private final String topic;
    private final Producer producer;
    private final SimpleConsumer consumer;
    private volatile int phase = WARM_UP;

    private Load(String endpoint, String topic, String group) throws Exception {
        this.topic = topic;
        ClientConfiguration configuration =
            ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(false).build();
        producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
        consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(WAIT).setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build();
    }

    public static void main(String[] words) {
        try {
            serve(words);
            Runtime.getRuntime().halt(0);
        } catch (Exception error) {
            error.printStackTrace();
            // Threads of the client would keep the process.
            Runtime.getRuntime().halt(1);
        }
    }

    private static void serve(String[] words) throws Exception {
        Load load = new Load(words[0], words[1], words[2]);
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.equals("probe")) {
                load.probe();
                continue;
            }
            String[] run = line.split(" ");
            load.run(run[0].equals("send"), Integer.parseInt(run[1]), Double.parseDouble(run[2]),
                Double.parseDouble(run[3]));
        }
    }

    private void probe() throws Exception {
        long begin = System.nanoTime();
        while (true) {
            try {
                producer.send(PROVIDER.newMessageBuilder().setTopic(topic).setBody(BODY).build());
                System.out.println("accepted");
                return;
            } catch (Exception error) {
                if (System.nanoTime() - begin > PROBE_NANOS_MAX) {
                    throw error;
                }
                Thread.sleep(100);
            }
        }
    }

    private void run(boolean sends, int threads, double warmUp, double seconds) throws Exception {
        phase = WARM_UP;
        AtomicReference<Exception> failed = new AtomicReference<>();
        List<Worker> workers = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            Worker worker = new Worker(sends, failed);
            workers.add(worker);
            worker.start();
        }
        Thread.sleep((long) (warmUp * 1e3));
        System.out.println("begin");
        long begin = System.nanoTime();
        phase = MEASURED;
        Thread.sleep((long) (seconds * 1e3));
        phase = OVER;
        double measured = (System.nanoTime() - begin) / 1e9;
        long messages = workers.stream().mapToLong(worker -> worker.messages).sum();
        long empty = workers.stream().mapToLong(worker -> worker.empty).sum();
        System.out.println(String.format(Locale.ROOT, "{\"messages\": %d, \"seconds\": %.6f, \"empty\": %d}", messages,
            measured, empty));
        for (Worker worker : workers) {
            worker.join();
        }
        if (failed.get() != null) {
            throw failed.get();
        }
        long[] times = workers.stream().flatMapToLong(Worker::measured).sorted().toArray();
        System.out.println(String.format(Locale.ROOT, "{\"p50_us\": %.1f, \"p99_us\": %.1f}", at(times, 0.5),
            at(times, 0.99)));
    }

    /** The time of this share of the steps, in microseconds. */
    private static double at(long[] times, double share) {
        return times.length == 0 ? 0 : times[(int) Math.min(times.length - 1, times.length * share)] / 1e3;
    }

    /** One thread, with one call in flight. Its counts are read while it runs: they may be a message behind. */
    private final class Worker extends Thread {
        private final boolean sends;
        private final AtomicReference<Exception> failed;
        private long[] times = new long[1 << 12];
        private int count;
        private volatile long messages;
        private volatile long empty;

        private Worker(boolean sends, AtomicReference<Exception> failed) {
            this.sends = sends;
            this.failed = failed;
        }

        private java.util.stream.LongStream measured() {
            return Arrays.stream(times, 0, count);
        }

        @Override
        public void run() {
            try {
                while (phase != OVER) {
                    long began = System.nanoTime();
                    boolean isWhole = sends ? send() : receive();
                    if (isWhole && phase == MEASURED) {
                        note(System.nanoTime() - began);
                    }
                }
            } catch (Exception error) {
                failed.compareAndSet(null, error);
            }
        }

        private boolean send() throws Exception {
            Message message = PROVIDER.newMessageBuilder().setTopic(topic).setBody(BODY).build();
            producer.send(message);
            counted();
            return true;
        }

        private boolean receive() throws Exception {
            List<MessageView> found = consumer.receive(BATCH, HIDDEN);
            for (MessageView one : found) {
                consumer.ack(one);
                counted();
            }
            if (found.isEmpty() && phase == MEASURED) {
                empty++;
            }
            return !found.isEmpty();
        }

        private void counted() {
            if (phase == MEASURED) {
                messages++;
            }
        }

        private void note(long time) {
            if (count == times.length) {
                times = Arrays.copyOf(times, 2 * count);
            }
            times[count++] = time;
        }
    }
}
