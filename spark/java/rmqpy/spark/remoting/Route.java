package rmqpy.spark.remoting;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The brokers of a topic, and their queues.
 *
 * @param addresses the address of each replica by broker and id; 0 is the master
 */
public record Route(String topic, List<QueueData> queues, Map<String, TreeMap<Long, String>> addresses) {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long MASTER_ID = 0;

    /** The queues of a topic on one broker, from 0 up to a count. */
    public record QueueData(String broker, int readable, int writable) {}

    /** A queue that accepts messages. */
    public record WritableQueue(String broker, int queueId) {}

    static Route parse(String topic, ByteBuffer body) throws IOException {
        JsonNode tree = JSON.readTree(body.array(), body.arrayOffset() + body.position(), body.remaining());
        if (tree.path("topicQueueMappingByBroker").size() > 0) {
            throw new RemotingException(
                    Codes.INVALID_PARAMETER,
                    "topic '" + topic + "' is static: its queues move between brokers, which format rocketmq reads");
        }
        Map<String, TreeMap<Long, String>> addresses = new HashMap<>();
        for (JsonNode broker : tree.path("brokerDatas")) {
            TreeMap<Long, String> replicas = new TreeMap<>();
            broker.path("brokerAddrs")
                    .properties()
                    .forEach(replica -> replicas.put(Long.parseLong(replica.getKey()), replica.getValue().asText()));
            addresses.put(broker.path("brokerName").asText(), replicas);
        }
        List<QueueData> queues = new ArrayList<>();
        for (JsonNode queue : tree.path("queueDatas")) {
            int permission = queue.path("perm").asInt();
            queues.add(
                    new QueueData(
                            queue.path("brokerName").asText(),
                            (permission & 4) != 0 ? queue.path("readQueueNums").asInt() : 0,
                            (permission & 2) != 0 ? queue.path("writeQueueNums").asInt() : 0));
        }
        return new Route(topic, queues, addresses);
    }

    /** Returns the address of a broker's master, or of any of its replicas if that suffices; null without one. */
    String address(String broker, boolean needsMaster) {
        TreeMap<Long, String> replicas = addresses.getOrDefault(broker, new TreeMap<>());
        String master = replicas.get(MASTER_ID);
        return master != null || needsMaster || replicas.isEmpty() ? master : replicas.firstEntry().getValue();
    }

    /** Returns the queues that accept messages, sorted: those of brokers with a master, at most a number for each. */
    public List<WritableQueue> writable(int countMax) {
        List<WritableQueue> found = new ArrayList<>();
        for (QueueData queue : queues) {
            for (int id = 0; id < Math.min(queue.writable(), countMax); id++) {
                if (address(queue.broker(), true) != null) {
                    found.add(new WritableQueue(queue.broker(), id));
                }
            }
        }
        found.sort(Comparator.comparing(WritableQueue::broker).thenComparing(WritableQueue::queueId));
        return found;
    }
}
