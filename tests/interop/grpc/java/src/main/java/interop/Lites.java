package interop;

import static interop.Scenarios.body;
import static interop.Text.object;
import static interop.Text.print;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.producer.Producer;

/** Scenarios of lite topics. */
final class Lites {
    private final Scenarios scenarios;
    private final List<String> words;

    Lites(Scenarios scenarios) {
        this.scenarios = scenarios;
        words = Arrays.asList(scenarios.arguments).subList(4, scenarios.arguments.length);
    }

    Map<String, Object> send() throws Exception {
        List<Object> sent = new ArrayList<>();
        try (Producer producer = scenarios.producer()) {
            for (String word : words.subList(1, words.size())) {
                try {
                    producer.send(scenarios.message(word).setLiteTopic(words.get(0)).build());
                    sent.add(word);
                } catch (ClientException refused) {
                    return object("sent", sent, "refused", String.valueOf(refused.getMessage()));
                }
            }
        }
        return object("sent", sent);
    }

    Map<String, Object> consume() throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        try (LitePushConsumer consumer = ClientServiceProvider.loadService().newLitePushConsumerBuilder()
            .setClientConfiguration(scenarios.configuration).setConsumerGroup(scenarios.group).bindTopic(scenarios.topic)
            .setMessageListener(one -> {
                print(object("got", body(one), "lite", one.getLiteTopic().orElse(null), "attempt",
                    one.getDeliveryAttempt()));
                boolean isNew = seen.add(body(one));
                return body(one).startsWith("once") && isNew ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build()) {
            for (String word : words) {
                consumer.subscribeLite(word);
            }
            print(object("ready", true));
            while (System.in.read() >= 0) {
                Thread.onSpinWait();
            }
            return object("ended", consumer.getConsumerGroup());
        }
    }
}
