package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** One transaction producer per group, from its first transaction until it leaves; it reports what it is asked about. */
final class Transactions {
    private static final int SEND_TIMEOUT_MS = 20_000;
    private static final int HEARTBEAT_INTERVAL_MS = 1_000;

    private final Consumer<JSONObject> events;
    private final Map<String, TransactionMQProducer> started = new HashMap<>();
    private int count;

    Transactions(Consumer<JSONObject> events) {
        this.events = events;
    }

    JSONArray transact(JSONObject request) throws Exception {
        TransactionMQProducer producer = producer(request);
        JSONArray results = new JSONArray();
        for (Message message : Messages.outgoing(request)) {
            LocalTransactionState decision = state(request.getString("decision"));
            results.add(Messages.described(producer.sendMessageInTransaction(message, decision)));
        }
        return results;
    }

    JSONObject leave(String group) {
        started.remove(group).shutdown();
        return new JSONObject();
    }

    private TransactionMQProducer producer(JSONObject request) throws Exception {
        String group = request.getString("group");
        TransactionMQProducer producer = started.get(group);
        if (producer == null) {
            LocalTransactionState answer = state(request.getString("answer"));
            producer = new TransactionMQProducer(group);
            Settings.apply(producer, request, "transactions-" + count++ + "-" + ProcessHandle.current().pid());
            producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
            producer.setHeartbeatBrokerInterval(HEARTBEAT_INTERVAL_MS); // The broker soon knows the group.
            producer.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message message, Object decision) {
                    return (LocalTransactionState) decision;
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    JSONArray asked = Messages.described(Collections.singletonList(message));
                    events.accept(new JSONObject().fluentPut("listener", group).fluentPut("messages", asked));
                    return answer;
                }
            });
            producer.start();
            started.put(group, producer);
        }
        return producer;
    }

    private static LocalTransactionState state(String decision) {
        switch (decision) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            case "unknown":
                return LocalTransactionState.UNKNOW;
            default:
                throw new IllegalArgumentException("unknown decision " + decision);
        }
    }
}
