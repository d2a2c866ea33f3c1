package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.ClientRemotingProcessor;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** The client's own POP calls, as the gRPC proxy makes them. Not built for the client of 4.9, which has none. */
final class Pops {
    private static final long TIMEOUT_MS = 5_000;

    private static MQClientAPIExt client;

    private Pops() {
    }

    static Object run(JSONObject request) throws Exception {
        switch (request.getString("api")) {
            case "pop":
                return pop(request);
            case "ack":
                return acknowledge(request);
            case "batch-ack":
                return acknowledgeAll(request);
            case "change":
                return change(request);
            case "notify":
                return notification(request);
            default:
                throw new IllegalArgumentException("unknown pop api " + request.getString("api"));
        }
    }

    private static synchronized MQClientAPIExt client() {
        if (client == null) {
            client = new MQClientAPIExt(
                new ClientConfig(), new NettyClientConfig(), new ClientRemotingProcessor(null), null);
            client.start();
        }
        return client;
    }

    private static JSONObject pop(JSONObject request) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(request.getString("group"));
        header.setTopic(request.getString("topic"));
        header.setQueueId(request.getIntValue("queue"));
        header.setMaxMsgNums(request.getIntValue("count"));
        header.setInvisibleTime(request.getLongValue("invisible_ms"));
        header.setPollTime(request.getLongValue("poll_ms"));
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp("*");
        header.setOrder(request.getBooleanValue("ordered"));
        header.setAttemptId(request.getString("attempt"));
        PopResult result = client()
            .popMessageAsync(
                request.getString("broker"), request.getString("broker_name"), header,
                request.getLongValue("poll_ms") + TIMEOUT_MS)
            .get();
        List<MessageExt> found = result.getMsgFoundList() == null ? new ArrayList<>() : result.getMsgFoundList();
        return new JSONObject()
            .fluentPut("status", result.getPopStatus().name())
            .fluentPut("messages", Messages.described(found));
    }

    private static JSONObject acknowledge(JSONObject request) throws Exception {
        String[] handle = ExtraInfoUtil.split(request.getString("handle"));
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(request.getString("group"));
        header.setTopic(ExtraInfoUtil.getRealTopic(handle, request.getString("topic"), request.getString("group")));
        header.setQueueId(ExtraInfoUtil.getQueueId(handle));
        header.setOffset(ExtraInfoUtil.getQueueOffset(handle));
        header.setExtraInfo(request.getString("handle"));
        return described(client().ackMessageAsync(request.getString("broker"), header, TIMEOUT_MS).get());
    }

    private static JSONObject acknowledgeAll(JSONObject request) throws Exception {
        JSONArray handles = request.getJSONArray("handles");
        return described(client()
            .batchAckMessageAsync(
                request.getString("broker"), request.getString("topic"), request.getString("group"),
                handles.toJavaList(String.class), TIMEOUT_MS)
            .get());
    }

    private static JSONObject change(JSONObject request) throws Exception {
        String[] handle = ExtraInfoUtil.split(request.getString("handle"));
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(request.getString("group"));
        header.setTopic(ExtraInfoUtil.getRealTopic(handle, request.getString("topic"), request.getString("group")));
        header.setQueueId(ExtraInfoUtil.getQueueId(handle));
        header.setOffset(ExtraInfoUtil.getQueueOffset(handle));
        header.setExtraInfo(request.getString("handle"));
        header.setInvisibleTime(request.getLongValue("invisible_ms"));
        return described(client()
            .changeInvisibleTimeAsync(
                request.getString("broker"), request.getString("broker_name"), header, TIMEOUT_MS)
            .get());
    }

    private static JSONObject notification(JSONObject request) throws Exception {
        NotificationRequestHeader header = new NotificationRequestHeader();
        header.setConsumerGroup(request.getString("group"));
        header.setTopic(request.getString("topic"));
        header.setQueueId(request.getIntValue("queue"));
        header.setPollTime(request.getLongValue("poll_ms"));
        header.setBornTime(System.currentTimeMillis());
        header.setOrder(request.getBooleanValue("ordered"));
        header.setAttemptId(request.getString("attempt"));
        boolean hasMessages = client()
            .notification(request.getString("broker"), header, request.getLongValue("poll_ms") + TIMEOUT_MS)
            .get();
        return new JSONObject().fluentPut("has_messages", hasMessages);
    }

    private static JSONObject described(AckResult result) {
        return new JSONObject()
            .fluentPut("status", result.getStatus().name())
            .fluentPut("handle", result.getExtraInfo());
    }
}
