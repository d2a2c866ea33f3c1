package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What the official dashboard asks, page by page, with the library that it asks with: each call by itself, and what came
 * of it. Of a group with a member, and of a topic that holds a message.
 */
final class Dashboard {
    private final JSONObject outcomes = new JSONObject(true);

    private Dashboard() {
    }

    static JSONObject visit(JSONObject request) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(request.getString("namesrv"));
        admin.setInstanceName("dashboard-" + System.nanoTime());
        admin.start();
        try {
            Dashboard dashboard = new Dashboard();
            dashboard.ask(admin, request);
            return dashboard.outcomes;
        } finally {
            admin.shutdown();
        }
    }

    private void ask(DefaultMQAdminExt admin, JSONObject request) throws Exception {
        String broker = request.getString("broker");
        String topic = request.getString("topic");
        String group = request.getString("group");
        String producer = request.getString("producer");
        String id = request.getString("messageId");
        long now = System.currentTimeMillis();
        call("cluster", admin::examineBrokerClusterInfo);
        call("runtime", () -> admin.fetchBrokerRuntimeStats(broker));
        call("broker config", () -> admin.getBrokerConfig(broker));
        call("topics", admin::fetchAllTopicList);
        call("topic configs", () -> admin.getAllTopicConfig(broker, 5000));
        call("route", () -> admin.examineTopicRouteInfo(topic));
        call("topic stats", () -> admin.examineTopicStats(topic));
        call("topic config", () -> admin.examineTopicConfig(broker, topic));
        call("make a topic", () -> done(() -> admin.createAndUpdateTopicConfig(broker, new TopicConfig("made-by-it", 2, 2, 6))));
        call("who consumes a topic", () -> admin.queryTopicConsumeByWho(topic));
        call("put rate", () -> admin.viewBrokerStatsData(broker, "TOPIC_PUT_NUMS", topic));
        call("get rate", () -> admin.viewBrokerStatsData(broker, "GROUP_GET_NUMS", topic + "@" + group));
        call("groups", () -> admin.getAllSubscriptionGroup(broker, 5000));
        call("consume stats", () -> admin.examineConsumeStats(group));
        call("consume stats of a topic", () -> admin.examineConsumeStats(group, topic));
        Object connections = call("members", () -> admin.examineConsumerConnectionInfo(group));
        String client = JSON.parseObject(JSON.toJSONString(connections)).getJSONArray("connectionSet")
            .getJSONObject(0).getString("clientId");
        call("running info", () -> admin.getConsumerRunningInfo(group, client, true));
        Object config = call("group config", () -> admin.examineSubscriptionGroupConfig(broker, group));
        call("make a group", () -> done(() -> {
            for (java.lang.reflect.Method method : DefaultMQAdminExt.class.getMethods()) {
                if (method.getName().equals("createAndUpdateSubscriptionGroupConfig")) {
                    method.invoke(admin, broker, config);
                }
            }
        }));
        call("producers", () -> admin.examineProducerConnectionInfo(producer, topic));
        MessageExt message = (MessageExt) call("message by id", () -> admin.viewMessage(topic, id));
        call("messages by key", () -> admin.queryMessage(topic, "A-1", 64, now - 3_600_000, now + 3_600_000));
        call("message by offset id", () -> admin.viewMessage(topic, message.getMsgId()));
        MessageQueue queue = new MessageQueue(topic, request.getString("brokerName"), message.getQueueId());
        call("offset by time", () -> admin.searchOffset(queue, now - 3_600_000));
        call("min offset", () -> admin.minOffset(queue));
        call("max offset", () -> admin.maxOffset(queue));
        call("pull", () -> pull(request.getString("namesrv"), queue));
        call("who has consumed it", () -> admin.messageTrackDetail(message));
        call("consume directly", () -> admin.consumeMessageDirectly(group, client, topic, id));
        call("reset", () -> admin.resetOffsetByTimestamp(topic, group, now, true));
        Set<String> brokers = new HashSet<>(Collections.singleton(broker));
        Set<String> names = new HashSet<>(Collections.singleton(request.getString("namesrv")));
        call("delete a topic", () -> done(() -> admin.deleteTopicInBroker(brokers, "made-by-it")));
        call("delete a topic's route", () -> done(() -> admin.deleteTopicInNameServer(names, "DefaultCluster", "made-by-it")));
        call("delete a group", () -> done(() -> admin.deleteSubscriptionGroup(broker, "to-delete")));
    }

    private static Object pull(String namesrv, MessageQueue queue) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("TOOLS_CONSUMER");
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("dashboard-pull-" + System.nanoTime());
        consumer.start();
        try {
            return consumer.pull(queue, "*", 0, 32).getPullStatus();
        } finally {
            consumer.shutdown();
        }
    }

    private Object call(String name, Callable<Object> work) {
        try {
            Object found = work.call();
            outcomes.put(name, found == null ? "null" : "ok");
            return found;
        } catch (Exception failure) {
            outcomes.put(name, String.valueOf(failure));
            return null;
        }
    }

    private interface Step {
        void take() throws Exception;
    }

    private static Object done(Step step) throws Exception {
        step.take();
        return "done";
    }
}
