package rmqpy.spark.source;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.spark.sql.connector.read.streaming.Offset;

/**
 * The position of a stream: the next offset of each queue.
 *
 * <p>Spark compares positions as text. A position that was read keeps its text, so that one which the source in Python
 * wrote equals itself.
 */
final class Position extends Offset {
    /** The version of positions. Newer connectors write a larger one. */
    private static final int VERSION = 1;

    private static final ObjectMapper JSON = new ObjectMapper();

    private final SortedMap<Queue, Long> queues;
    private final boolean isFirst;
    private final SortedMap<Queue, Long> begunAt;
    private final Begin begin;
    private final String text;

    private Position(
            SortedMap<Queue, Long> queues, boolean isFirst, SortedMap<Queue, Long> begunAt, Begin begin, String text) {
        this.queues = queues;
        this.isFirst = isFirst;
        this.begunAt = begunAt;
        this.begin = begin;
        this.text = text == null ? format() : text;
    }

    /** Returns the position at which a query begins. */
    static Position first(Map<Queue, Long> queues, Begin begin) {
        return new Position(new TreeMap<>(queues), true, null, begin, null);
    }

    /** Returns the end of a micro-batch. `begunAt` is its start if Spark might compute another one, else null. */
    static Position end(Map<Queue, Long> queues, Map<Queue, Long> begunAt, Begin begin) {
        return new Position(
                new TreeMap<>(queues), false, begunAt == null ? null : new TreeMap<>(begunAt), begin, null);
    }

    /** Parses a position. Fails if a newer connector or another source wrote it. */
    static Position parse(String text) {
        JsonNode tree;
        try {
            tree = JSON.readTree(text);
        } catch (JsonProcessingException malformed) {
            throw new IllegalArgumentException("not a position of the rocketmq source: " + text, malformed);
        }
        if (!tree.path("v").isInt()) {
            throw new IllegalArgumentException("not a position of the rocketmq source: " + text);
        }
        if (tree.path("v").asInt() > VERSION) {
            throw new IllegalArgumentException(
                    "a newer pyspark-rocketmq wrote this checkpoint (offsets of version "
                            + tree.path("v").asInt()
                            + "): upgrade pyspark-rocketmq");
        }
        return new Position(
                offsets(tree.path("queues")),
                tree.path("first").asBoolean(false),
                tree.has("from") ? offsets(tree.path("from")) : null,
                tree.has("begin") ? begin(tree.path("begin")) : null,
                text);
    }

    /** Parses offsets by topic, broker and queue, as in options. Fails with the part that is not valid. */
    static SortedMap<Queue, Long> parseOffsets(String text) {
        try {
            return offsets(JSON.readTree(text));
        } catch (JsonProcessingException malformed) {
            throw new IllegalArgumentException(
                    "expected earliest, latest or JSON by topic, broker and queue (got '" + text + "')", malformed);
        }
    }

    private static SortedMap<Queue, Long> offsets(JsonNode topics) {
        SortedMap<Queue, Long> found = new TreeMap<>();
        for (Map.Entry<String, JsonNode> topic : topics.properties()) {
            for (Map.Entry<String, JsonNode> broker : topic.getValue().properties()) {
                for (Map.Entry<String, JsonNode> queue : broker.getValue().properties()) {
                    String place = topic.getKey() + "/" + broker.getKey() + "/" + queue.getKey();
                    if (!queue.getKey().matches("0|[1-9]\\d{0,8}") || !queue.getValue().isIntegralNumber()) {
                        throw new IllegalArgumentException(place + ": expected a queue id and an offset");
                    }
                    Queue name = new Queue(topic.getKey(), broker.getKey(), Integer.parseInt(queue.getKey()));
                    found.put(name, queue.getValue().asLong());
                }
            }
        }
        return found;
    }

    private static Begin begin(JsonNode tree) {
        List<String> brokers = new ArrayList<>();
        tree.path("brokers").forEach(broker -> brokers.add(broker.asText()));
        return new Begin(brokers, tree.has("ms") ? tree.path("ms").asLong() : null);
    }

    /** The next offset of each queue. */
    SortedMap<Queue, Long> queues() {
        return queues;
    }

    /** Whether no micro-batch has ended here. */
    boolean isFirst() {
        return isFirst;
    }

    /** The start of the micro-batch that ends here, or null if its start is in the log. */
    SortedMap<Queue, Long> begunAt() {
        return begunAt;
    }

    /** The state in which the query began, or null if an older connector began it. */
    Begin begin() {
        return begin;
    }

    @Override
    public String json() {
        return text;
    }

    private String format() {
        ObjectNode tree = JSON.createObjectNode();
        tree.put("v", VERSION);
        tree.set("queues", nested(queues));
        if (isFirst) {
            tree.put("first", true);
        }
        if (begunAt != null) {
            tree.set("from", nested(begunAt));
        }
        if (begin != null) {
            ObjectNode state = tree.putObject("begin");
            begin.brokers().stream().sorted().forEach(state.putArray("brokers")::add);
            if (begin.sinceMs() != null) {
                state.put("ms", begin.sinceMs());
            }
        }
        return tree.toString();
    }

    private static ObjectNode nested(SortedMap<Queue, Long> offsets) {
        ObjectNode topics = JSON.createObjectNode();
        offsets.forEach(
                (queue, offset) ->
                        topics.withObjectProperty(queue.topic())
                                .withObjectProperty(queue.broker())
                                .put(Integer.toString(queue.queueId()), offset));
        return topics;
    }
}
