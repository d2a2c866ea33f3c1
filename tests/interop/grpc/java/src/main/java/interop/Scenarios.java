package interop;

import static interop.Text.object;
import static interop.Text.print;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** One scenario of the Java client: SCENARIO ADDRESS TOPIC GROUP [ARGUMENT...]; ../scenarios.md has them all. */
public final class Scenarios {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Duration HIDDEN = Duration.ofSeconds(10);

    final ClientConfiguration configuration;
    final String[] arguments;
    final String topic;
    final String group;

    private Scenarios(String[] words) {
        topic = words[2];
        group = words[3];
        arguments = words;
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(words[1])
            .enableSsl("1".equals(System.getenv("GRPC_TLS")));
        String user = System.getenv("GRPC_USER");
        if (user != null) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(user, System.getenv("GRPC_SECRET")));
        }
        configuration = builder.build();
    }

    public static void main(String[] words) throws Exception {
        Scenarios scenarios = new Scenarios(words);
        print(scenarios.run(words[0]));
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> run(String scenario) throws Exception {
        switch (scenario) {
            case "normal":
                return normal();
            case "fifo":
                return fifo();
            case "delay":
                return delay();
            case "recall":
                return recall();
            case "transactions":
                return transactions();
            case "again":
                return again();
            case "filter":
                return filter();
            case "send":
                return send();
            case "push":
                return push();
            case "steady":
                return steady();
            case "lite":
                return new Lites(this).consume();
            case "lite-send":
                return new Lites(this).send();
            default:
                return new Limits(this).run(scenario);
        }
    }

    private Map<String, Object> normal() throws Exception {
        try (Producer producer = producer(); SimpleConsumer consumer = consumer()) {
            SendReceipt receipt = producer.send(message("hello").setTag("greeting").setKeys("key-1")
                .addProperty("color", "blue").build());
            List<Object> found = new ArrayList<>();
            for (MessageView one : received(consumer, 1, true)) {
                found.add(object("id", one.getMessageId().toString(), "body", body(one), "tag", one.getTag().orElse(null),
                    "keys", new ArrayList<>(one.getKeys()), "color", one.getProperties().get("color"),
                    "attempt", one.getDeliveryAttempt()));
            }
            int rest = consumer.receive(32, HIDDEN).size();
            return object("sent", receipt.getMessageId().toString(), "found", found, "rest", rest);
        }
    }

    private Map<String, Object> fifo() throws Exception {
        try (Producer producer = producer(); SimpleConsumer consumer = consumer()) {
            for (int number = 0; number < 4; number++) {
                producer.send(message(String.valueOf(number)).setMessageGroup("order-1").build());
            }
            List<Object> found = new ArrayList<>();
            List<Object> groups = new ArrayList<>();
            for (MessageView one : received(consumer, 4, true)) {
                found.add(body(one));
                groups.add(one.getMessageGroup().orElse(null));
            }
            return object("found", found, "groups", groups);
        }
    }

    private Map<String, Object> delay() throws Exception {
        try (Producer producer = producer(); SimpleConsumer consumer = consumer()) {
            long begin = System.currentTimeMillis();
            SendReceipt receipt = producer.send(message("later").setDeliveryTimestamp(begin + 3_000).build());
            List<Object> found = bodies(received(consumer, 1, true));
            double after = (System.currentTimeMillis() - begin) / 1e3;
            return object("found", found, "after", after, "recall", !receipt.getRecallHandle().isEmpty());
        }
    }

    private Map<String, Object> recall() throws Exception {
        try (Producer producer = producer()) {
            long at = System.currentTimeMillis() + 60_000;
            SendReceipt receipt = producer.send(message("never").setDeliveryTimestamp(at).build());
            String recalled = producer.recallMessage(topic, receipt.getRecallHandle()).getMessageId().toString();
            return object("sent", receipt.getMessageId().toString(), "recalled", recalled);
        }
    }

    private Map<String, Object> transactions() throws Exception {
        List<Object> asked = Collections.synchronizedList(new ArrayList<>());
        TransactionChecker checker = one -> {
            asked.add(body(one));
            return TransactionResolution.COMMIT;
        };
        try (Producer producer = producer(checker); SimpleConsumer consumer = consumer()) {
            for (String body : List.of("commit", "rollback", "check")) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message(body).build(), transaction);
                if (body.equals("commit")) {
                    transaction.commit();
                } else if (body.equals("rollback")) {
                    transaction.rollback();
                }
            }
            List<Object> found = bodies(received(consumer, 2, true));
            return object("found", found, "asked", asked);
        }
    }

    private Map<String, Object> again() throws Exception {
        try (Producer producer = producer(); SimpleConsumer consumer = consumer()) {
            producer.send(message("once more").build());
            MessageView first = received(consumer, 1, false).get(0);
            consumer.changeInvisibleDuration(first, Duration.ofSeconds(1));
            MessageView second = received(consumer, 1, false).get(0);
            consumer.changeInvisibleDuration(second, Duration.ofSeconds(30));
            consumer.ack(second);
            return object("attempts", List.of(first.getDeliveryAttempt(), second.getDeliveryAttempt()));
        }
    }

    private Map<String, Object> filter() throws Exception {
        try (Producer producer = producer(); SimpleConsumer consumer = filtered()) {
            for (int number = 0; number < 4; number++) {
                producer.send(message(String.valueOf(number)).setTag(number % 2 == 0 ? "even" : "odd")
                    .addProperty("number", String.valueOf(number)).build());
            }
            return object("found", bodies(received(consumer, 2, true)));
        }
    }

    private Map<String, Object> send() throws Exception {
        try (Producer producer = producer()) {
            return object("sent", producer.send(message("hello").build()).getMessageId().toString());
        } catch (Exception refused) {
            return object("refused", String.valueOf(refused.getMessage()));
        }
    }

    private Map<String, Object> push() throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        try (PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(one -> {
                print(object("got", body(one), "attempt", one.getDeliveryAttempt()));
                boolean isNew = seen.add(body(one));
                boolean fails = body(one).startsWith("bad") || body(one).startsWith("once") && isNew;
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build()) {
            print(object("ready", true));
            while (System.in.read() >= 0) {
                Thread.onSpinWait();
            }
            return object("ended", consumer.getConsumerGroup());
        }
    }

    private Map<String, Object> steady() throws Exception {
        try (Producer producer = producer()) {
            for (int number = 0; !isOver(); number++) {
                try {
                    producer.send(message(String.valueOf(number)).build());
                    print(object("sent", String.valueOf(number)));
                } catch (Exception failed) {
                    print(object("failed", String.valueOf(failed.getMessage())));
                }
                Thread.sleep(100);
            }
            return object("ended", topic);
        }
    }

    /** Whether the test has written anything. */
    private static boolean isOver() throws IOException {
        return System.in.available() > 0;
    }

    Producer producer(TransactionChecker checker) throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
            .setTransactionChecker(checker).build();
    }

    Producer producer() throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
    }

    /** A consumer with the filter of the arguments. */
    SimpleConsumer filtered() throws Exception {
        boolean isSql = arguments[4].equals("SQL");
        return consumer(arguments[5], isSql ? FilterExpressionType.SQL92 : FilterExpressionType.TAG);
    }

    SimpleConsumer consumer() throws Exception {
        return consumer("*", FilterExpressionType.TAG);
    }

    private SimpleConsumer consumer(String expression, FilterExpressionType type) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, new FilterExpression(expression, type))).build();
    }

    MessageBuilder message(String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static List<MessageView> received(SimpleConsumer consumer, int count, boolean acks) throws Exception {
        List<MessageView> found = new ArrayList<>();
        long end = System.nanoTime() + 30_000_000_000L;
        while (found.size() < count && System.nanoTime() < end) {
            for (MessageView one : consumer.receive(32, HIDDEN)) {
                found.add(one);
                if (acks) {
                    consumer.ack(one);
                }
            }
        }
        return found;
    }

    static List<Object> bodies(List<MessageView> views) {
        List<Object> found = new ArrayList<>();
        views.forEach(one -> found.add(body(one)));
        return found;
    }

    static String body(MessageView one) {
        return StandardCharsets.UTF_8.decode(one.getBody()).toString();
    }
}
