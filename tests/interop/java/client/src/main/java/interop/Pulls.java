package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The three ways in which a Java application asks for messages itself. Each call is one consumer's whole life. */
final class Pulls {
    private static final int BATCH_MESSAGES = 32;

    private Pulls() {
    }

    static JSONArray pull(JSONObject request) throws Exception {
        switch (request.getString("api")) {
            case "old":
                return Messages.described(pullEachQueue(request));
            case "lite":
                return Messages.described(pollLite(request, false));
            case "assign":
                return Messages.described(pollLite(request, true));
            default:
                throw new IllegalArgumentException("unknown pull api " + request.getString("api"));
        }
    }

    /** DefaultMQPullConsumer: the caller names queue and offset. */
    @SuppressWarnings("deprecation")
    private static List<MessageExt> pullEachQueue(JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(request.getString("group"));
        Settings.apply(consumer, request, instance(request));
        consumer.start();
        try {
            List<MessageExt> pulled = new ArrayList<>();
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(request.getString("topic"))) {
                long offset = consumer.minOffset(queue);
                long end = consumer.maxOffset(queue);
                while (offset < end) {
                    PullResult result = consumer.pull(queue, request.getString("filter"), offset, BATCH_MESSAGES);
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        pulled.addAll(result.getMsgFoundList());
                    }
                    offset = result.getNextBeginOffset();
                }
                consumer.updateConsumeOffset(queue, offset);
            }
            return pulled;
        } finally {
            consumer.shutdown();
        }
    }

    /** DefaultLitePullConsumer: subscribed and balanced, or with queues assigned by the caller. */
    private static List<MessageExt> pollLite(JSONObject request, boolean isAssigned) throws Exception {
        String topic = request.getString("topic");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(request.getString("group"));
        Settings.apply(consumer, request, instance(request));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (isAssigned) {
            consumer.setSubExpressionForAssign(topic, request.getString("filter"));
        } else {
            consumer.subscribe(topic, request.getString("filter"));
        }
        consumer.start();
        try {
            if (isAssigned) {
                // No seek after it: a pull that is under way then can be delivered beside that of the place sought.
                consumer.assign(consumer.fetchMessageQueues(topic));
            }
            return poll(consumer, request.getIntValue("count"), request.getLongValue("timeout_ms"));
        } finally {
            consumer.shutdown();
        }
    }

    private static List<MessageExt> poll(DefaultLitePullConsumer consumer, int count, long timeoutMs) {
        List<MessageExt> polled = new ArrayList<>();
        long deadline = System.nanoTime() + timeoutMs * 1_000_000;
        while (polled.size() < count && System.nanoTime() < deadline) {
            polled.addAll(consumer.poll(500));
        }
        return polled;
    }

    private static String instance(JSONObject request) {
        return request.getString("group") + "-" + request.getString("api");
    }
}
