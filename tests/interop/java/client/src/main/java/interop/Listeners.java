package interop;

import com.alibaba.fastjson.JSONObject;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers by name. Each consumed batch is written as one event before the client may commit it. */
final class Listeners {
    /**
     * A client that rebalances while it is sending a heartbeat skips the one that would announce its newer
     * subscription, and is refused its pulls until the next: by default half a minute later.
     */
    private static final int HEARTBEAT_INTERVAL_MS = 2_000;
    private static final int ROUTE_INTERVAL_MS = 2_000;

    private final Map<String, DefaultMQPushConsumer> started = new HashMap<>();
    private final Consumer<JSONObject> events;

    Listeners(Consumer<JSONObject> events) {
        this.events = events;
    }

    JSONObject start(JSONObject request) throws Exception {
        String name = request.getString("listener");
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(request.getString("group"), request.getBooleanValue("trace"), null);
        Settings.apply(consumer, request, name + "-" + ProcessHandle.current().pid());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (request.getString("sql") != null) {
            consumer.subscribe(request.getString("topic"), MessageSelector.bySql(request.getString("sql")));
        } else {
            consumer.subscribe(request.getString("topic"), request.getString("filter"));
        }
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_INTERVAL_MS);
        consumer.setPollNameServerInterval(ROUTE_INTERVAL_MS);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(4);
        if (request.getBooleanValue("broker_assigns")) {
            // By its name: 4.9 has no such setting.
            consumer.getClass().getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        if (request.getBooleanValue("broadcast")) {
            // Without its name: the enumeration has moved to another package since 4.9.
            consumer.setMessageModel(consumer.getMessageModel().valueOf("BROADCASTING"));
        }
        if (request.getBooleanValue("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                report(name, messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            boolean isFailing = request.getBooleanValue("failing");
            if (isFailing) {
                consumer.setMaxReconsumeTimes(request.getIntValue("retries"));
            } else {
                consumer.setConsumeMessageBatchMaxSize(32);
            }
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                report(name, messages);
                return isFailing
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        started.put(name, consumer);
        return new JSONObject();
    }

    JSONObject stop(String name) {
        started.remove(name).shutdown();
        return new JSONObject();
    }

    private void report(String name, List<MessageExt> messages) {
        events.accept(new JSONObject().fluentPut("listener", name).fluentPut("messages", Messages.described(messages)));
    }
}
