package interop;

import static interop.Scenarios.bodies;
import static interop.Scenarios.body;
import static interop.Scenarios.received;
import static interop.Text.object;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Scenarios at the limits of messages, batches, times and checks. */
final class Limits {
    private static final Duration HIDDEN = Duration.ofSeconds(10);
    private static final long SECONDS = 1_000_000_000L;

    private final Scenarios scenarios;
    private final String[] arguments;

    Limits(Scenarios scenarios) {
        this.scenarios = scenarios;
        arguments = scenarios.arguments;
    }

    Map<String, Object> run(String scenario) throws Exception {
        switch (scenario) {
            case "exchange":
                return exchange();
            case "batches":
                return batches();
            case "stuck":
                return stuck();
            case "bounds":
                return bounds();
            case "late":
                return late();
            case "checks":
                return checks();
            default:
                throw new IllegalArgumentException(scenario);
        }
    }

    private Map<String, Object> exchange() throws Exception {
        int count = Integer.parseInt(arguments[6]);
        List<Object> refused = new ArrayList<>();
        List<Object> found = new ArrayList<>();
        try (Producer producer = scenarios.producer(); SimpleConsumer consumer = count > 0 ? scenarios.filtered() : null) {
            for (String text : Arrays.asList(arguments).subList(7, arguments.length)) {
                try {
                    producer.send(Text.described(scenarios.message(" "), text));
                    refused.add(null);
                } catch (Exception reason) {
                    refused.add(String.valueOf(reason.getMessage()));
                }
            }
            if (consumer != null) {
                for (MessageView one : received(consumer, count, true)) {
                    found.add(object("body", body(one), "tag", one.getTag().orElse(null),
                        "keys", new ArrayList<>(one.getKeys()), "properties", one.getProperties()));
                }
            }
        }
        return object("refused", refused, "found", found);
    }

    private Map<String, Object> batches() throws Exception {
        int count = Integer.parseInt(arguments[4]);
        List<Object> sizes = new ArrayList<>();
        List<Object> found = new ArrayList<>();
        try (Producer producer = scenarios.producer(); SimpleConsumer consumer = scenarios.consumer()) {
            List<CompletableFuture<SendReceipt>> sending = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                sending.add(producer.sendAsync(scenarios.message(String.valueOf(number)).build()));
            }
            for (CompletableFuture<SendReceipt> sent : sending) {
                sent.get();
            }
            long end = System.nanoTime() + 60 * SECONDS;
            for (int turn = 0; found.size() <= count && System.nanoTime() < end; turn++) {
                boolean isAsync = turn % 2 == 1;
                List<MessageView> views =
                    isAsync ? consumer.receiveAsync(50, HIDDEN).get() : consumer.receive(50, HIDDEN);
                for (MessageView one : views) {
                    found.add(List.of(body(one), one.getDeliveryAttempt()));
                    if (body(one).equals("0") && one.getDeliveryAttempt() == 1) {
                        continue;
                    }
                    if (isAsync) {
                        consumer.ackAsync(one).get();
                    } else {
                        consumer.ack(one);
                    }
                }
                if (!views.isEmpty()) {
                    sizes.add(views.size());
                }
            }
            return object("sizes", sizes, "found", found, "rest", consumer.receive(32, HIDDEN).size());
        }
    }

    private Map<String, Object> stuck() throws Exception {
        List<Object> batches = new ArrayList<>();
        Set<String> acked = new TreeSet<>();
        try (Producer producer = scenarios.producer(); SimpleConsumer consumer = scenarios.consumer()) {
            for (int number = 0; number < 6; number++) {
                producer.send(scenarios.message(String.valueOf(number)).setMessageGroup("order-1").build());
            }
            long end = System.nanoTime() + 60 * SECONDS;
            while (acked.size() < 6 && System.nanoTime() < end) {
                List<MessageView> views = consumer.receive(3, HIDDEN);
                if (views.isEmpty()) {
                    continue;
                }
                int place = batches.isEmpty() ? 1 : 0;
                batches.add(bodies(views));
                for (MessageView one : views.subList(place, views.size())) {
                    consumer.ack(one);
                    acked.add(body(one));
                }
            }
        }
        return object("batches", batches);
    }

    private Map<String, Object> bounds() throws Exception {
        List<Object> refused = new ArrayList<>();
        try (SimpleConsumer consumer = scenarios.consumer()) {
            for (long seconds : new long[] {9, 43_201}) {
                try {
                    consumer.receive(1, Duration.ofSeconds(seconds));
                    refused.add(null);
                } catch (Exception reason) {
                    refused.add(String.valueOf(reason.getMessage()));
                }
            }
            long begin = System.nanoTime();
            int count = consumer.receive(100_000, HIDDEN).size();
            return object("refused", refused, "count", count, "after", (double) (System.nanoTime() - begin) / SECONDS);
        }
    }

    private Map<String, Object> late() throws Exception {
        try (Producer producer = scenarios.producer(); SimpleConsumer consumer = scenarios.consumer()) {
            producer.send(scenarios.message("late").build());
            MessageView first = received(consumer, 1, false).get(0);
            Thread.sleep(HIDDEN.toMillis() + 1_000);
            String refused = null;
            try {
                consumer.ack(first);
            } catch (Exception reason) {
                refused = String.valueOf(reason.getMessage());
            }
            MessageView second = received(consumer, 1, true).get(0);
            return object("refused", refused, "attempt", second.getDeliveryAttempt());
        }
    }

    private Map<String, Object> checks() throws Exception {
        List<String> asked = Collections.synchronizedList(new ArrayList<>());
        TransactionChecker checker = one -> {
            String body = body(one);
            asked.add(body);
            if (body.equals("rollback")) {
                return TransactionResolution.ROLLBACK;
            }
            boolean isFirst = Collections.frequency(asked, body) == 1;
            return body.equals("unknown") && isFirst ? TransactionResolution.UNKNOWN : TransactionResolution.COMMIT;
        };
        try (Producer producer = scenarios.producer(checker); SimpleConsumer consumer = scenarios.consumer()) {
            for (String body : List.of("commit", "rollback", "unknown")) {
                producer.send(scenarios.message(body).build(), producer.beginTransaction());
            }
            List<Object> found = bodies(received(consumer, 2, true));
            found.addAll(bodies(consumer.receive(32, HIDDEN)));
            return object("found", found, "asked", asked);
        }
    }
}
