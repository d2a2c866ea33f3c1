package interop;

import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests, and repliers by name, which answer with the request in capitals. */
final class Requests {
    private static final int REPLY_TIMEOUT_MS = 10_000;
    private static final int HEARTBEAT_INTERVAL_MS = 2_000;
    private static final int ROUTE_INTERVAL_MS = 2_000;

    private final Map<String, DefaultMQPushConsumer> repliers = new HashMap<>();
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();

    JSONObject request(JSONObject request) throws Exception {
        List<Message> messages = Messages.outgoing(request);
        Message reply = producer(request).request(messages.get(0), request.getLongValue("timeout_ms"));
        return new JSONObject()
            .fluentPut("body", Base64.getEncoder().encodeToString(reply.getBody()))
            .fluentPut("properties", new TreeMap<>(reply.getProperties()));
    }

    JSONObject reply(JSONObject request) throws Exception {
        DefaultMQProducer producer = producer(request);
        String name = request.getString("listener");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        Settings.apply(consumer, request, name + "-" + ProcessHandle.current().pid());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_INTERVAL_MS);
        consumer.setPollNameServerInterval(ROUTE_INTERVAL_MS);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                for (MessageExt message : messages) {
                    producer.send(answerTo(message), REPLY_TIMEOUT_MS);
                }
            } catch (Exception failure) {
                failure.printStackTrace();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        repliers.put(name, consumer);
        return new JSONObject();
    }

    JSONObject stop(String name) {
        repliers.remove(name).shutdown();
        return new JSONObject();
    }

    private static Message answerTo(MessageExt message) throws Exception {
        String text = new String(message.getBody(), StandardCharsets.UTF_8).toUpperCase(Locale.ROOT);
        Message reply = MessageUtil.createReplyMessage(message, text.getBytes(StandardCharsets.UTF_8));
        reply.putUserProperty("language", "java");
        return reply;
    }

    private DefaultMQProducer producer(JSONObject request) throws Exception {
        String name = request.getString("namesrv") + "/" + request.getString("verb");
        DefaultMQProducer producer = producers.get(name);
        if (producer == null) {
            producer = new DefaultMQProducer("interop-" + request.getString("verb"));
            Settings.apply(producer, request, "requests-" + producers.size() + "-" + ProcessHandle.current().pid());
            producer.setHeartbeatBrokerInterval(HEARTBEAT_INTERVAL_MS);
            producer.setPollNameServerInterval(ROUTE_INTERVAL_MS);
            producer.start();
            producers.put(name, producer);
        }
        return producer;
    }
}
