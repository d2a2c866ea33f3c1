package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/** One producer per name server, compression, namespace and trace, started on first use and kept until the process ends. */
final class Producers {
    private static final int SEND_TIMEOUT_MS = 20_000;
    private static final int IN_FLIGHT_MAX = 64;
    private static final int HEARTBEAT_INTERVAL_MS = 2_000;
    private static final int ROUTE_INTERVAL_MS = 2_000;

    private final Map<String, DefaultMQProducer> started = new HashMap<>();

    JSONArray send(JSONObject request) throws Exception {
        DefaultMQProducer producer = producer(request);
        List<Message> messages = Messages.outgoing(request);
        JSONArray results = new JSONArray();
        switch (request.getString("mode")) {
            case "sync":
                for (Message message : messages) {
                    results.add(Messages.described(producer.send(message)));
                }
                break;
            case "async":
                for (SendResult result : sendAsync(producer, messages)) {
                    results.add(Messages.described(result));
                }
                break;
            case "oneway":
                for (Message message : messages) {
                    producer.sendOneway(message);
                }
                break;
            case "batch":
                results.add(Messages.described(producer.send(messages)));
                break;
            case "keyed":
                for (Message message : messages) {
                    results.add(Messages.described(
                        producer.send(message, new SelectMessageQueueByHash(), message.getKeys())));
                }
                break;
            default:
                throw new IllegalArgumentException("unknown mode " + request.getString("mode"));
        }
        return results;
    }

    /** By reflection, for the same reason as the handle itself. */
    String recall(JSONObject request) throws Exception {
        try {
            return (String) DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer(request), request.getString("topic"), request.getString("handle"));
        } catch (InvocationTargetException failure) {
            throw (Exception) failure.getCause();
        }
    }

    private static List<SendResult> sendAsync(DefaultMQProducer producer, List<Message> messages) throws Exception {
        List<CompletableFuture<SendResult>> pending = new ArrayList<>();
        Semaphore inFlight = new Semaphore(IN_FLIGHT_MAX);
        for (Message message : messages) {
            CompletableFuture<SendResult> completion = new CompletableFuture<>();
            completion.whenComplete((result, failure) -> inFlight.release());
            pending.add(completion);
            inFlight.acquire();
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    completion.complete(result);
                }

                @Override
                public void onException(Throwable failure) {
                    completion.completeExceptionally(failure);
                }
            });
        }
        List<SendResult> results = new ArrayList<>();
        for (CompletableFuture<SendResult> completion : pending) {
            results.add(completion.get(2 * SEND_TIMEOUT_MS, TimeUnit.MILLISECONDS));
        }
        return results;
    }

    private DefaultMQProducer producer(JSONObject request) throws Exception {
        String compression = request.getString("compression");
        boolean isTracing = request.getBooleanValue("trace");
        String name = request.getString("namesrv") + "/" + compression + "/" + request.getString("namespace")
            + "/" + isTracing;
        DefaultMQProducer producer = started.get(name);
        if (producer == null) {
            producer = new DefaultMQProducer("interop-producer", isTracing, null);
            Settings.apply(producer, request, "producer-" + started.size() + "-" + ProcessHandle.current().pid());
            producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
            producer.setHeartbeatBrokerInterval(HEARTBEAT_INTERVAL_MS); // The broker soon knows the group.
            producer.setPollNameServerInterval(ROUTE_INTERVAL_MS); // It soon knows of a change.
            if (compression != null && !compression.equals("zlib")) {
                chooseCompression(producer, compression);
            }
            producer.start();
            started.put(name, producer);
        }
        return producer;
    }

    /** By reflection, because the 4.9 client, which is built from the same source, knows zlib only. */
    private static void chooseCompression(DefaultMQProducer producer, String compression) throws Exception {
        Class<?> type = Class.forName("org.apache.rocketmq.common.compression.CompressionType");
        Object chosen = type.getMethod("valueOf", String.class).invoke(null, compression.toUpperCase());
        DefaultMQProducer.class.getMethod("setCompressType", type).invoke(producer, chosen);
    }
}
