package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages and send results as JSON, and back. Bodies travel as Base64. */
final class Messages {
    private Messages() {
    }

    static List<Message> outgoing(JSONObject request) {
        List<Message> messages = new ArrayList<>();
        JSONArray described = request.getJSONArray("messages");
        for (int index = 0; index < described.size(); index++) {
            messages.add(outgoing(request.getString("topic"), described.getJSONObject(index)));
        }
        return messages;
    }

    private static Message outgoing(String topic, JSONObject described) {
        Message message = new Message(topic, Base64.getDecoder().decode(described.getString("body")));
        message.setFlag(described.getIntValue("flag"));
        if (described.getString("tag") != null) {
            message.setTags(described.getString("tag"));
        }
        if (!described.getJSONArray("keys").isEmpty()) {
            message.setKeys(described.getJSONArray("keys").toJavaList(String.class));
        }
        // Not putUserProperty, which refuses empty values: applications set those through this accessor.
        described.getJSONObject("properties")
            .forEach((name, value) -> MessageAccessor.putProperty(message, name, (String) value));
        return message;
    }

    static JSONObject described(MessageExt message) {
        return new JSONObject()
            .fluentPut("topic", message.getTopic())
            .fluentPut("body", Base64.getEncoder().encodeToString(message.getBody()))
            .fluentPut("tag", message.getTags())
            .fluentPut("keys", message.getKeys())
            .fluentPut("properties", new TreeMap<>(message.getProperties()))
            .fluentPut("flag", message.getFlag())
            .fluentPut("id", message.getMsgId())
            .fluentPut("offset_id", offsetId(message))
            .fluentPut("queue_id", message.getQueueId())
            .fluentPut("queue_offset", message.getQueueOffset())
            .fluentPut("reconsume_times", message.getReconsumeTimes())
            .fluentPut("stored_ms", message.getStoreTimestamp());
    }

    /** One that a broker asks about is no message of a consumer, and its id is this one. */
    private static String offsetId(MessageExt message) {
        return message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId();
    }

    static JSONArray described(List<MessageExt> messages) {
        JSONArray array = new JSONArray();
        messages.forEach(message -> array.add(described(message)));
        return array;
    }

    static JSONObject described(SendResult result) throws ReflectiveOperationException {
        return new JSONObject()
            .fluentPut("recall_handle", recallHandle(result))
            .fluentPut("status", result.getSendStatus().name())
            .fluentPut("id", result.getMsgId())
            .fluentPut("offset_id", result.getOffsetMsgId())
            .fluentPut("queue_id", result.getMessageQueue().getQueueId())
            .fluentPut("queue_offset", result.getQueueOffset());
    }

    /** By reflection, because the 4.9 client, which is built from the same source, takes nothing back. */
    private static Object recallHandle(SendResult result) throws ReflectiveOperationException {
        try {
            return SendResult.class.getMethod("getRecallHandle").invoke(result);
        } catch (NoSuchMethodException old) {
            return null;
        }
    }
}
