package rmqpy.spark;

import java.io.Serializable;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeParseException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import rmqpy.spark.remoting.Client;
import rmqpy.spark.remoting.Credentials;
import rmqpy.spark.remoting.Tls;

/**
 * The options of one read or write, checked. Names and meanings are those of format `rocketmq`; one that this format
 * does not have is refused by name.
 */
public final class Options implements Serializable {
    private static final long serialVersionUID = 1L;

    /** What options apply to. */
    public enum Role {
        STREAM,
        WRITE
    }

    private record Known(String name, Set<Role> roles) {}

    private static final Map<String, Known> KNOWN = new LinkedHashMap<>();

    static {
        Set<Role> both = Set.of(Role.STREAM, Role.WRITE);
        known("nameserver", both, "nameServer", "namesrvAddr");
        known("namespace", both);
        known("accessKey", both);
        known("secretKey", both);
        known("tls", both);
        known("tls.caFile", both);
        known("tls.certFile", both);
        known("tls.keyFile", both);
        known("tls.serverName", both);
        known("tls.skipVerify", both);
        known("requestTimeoutMs", both);
        Set<Role> stream = Set.of(Role.STREAM);
        known("subscribe", stream);
        known("subExpression", stream);
        known("consumerGroup", stream);
        known("startingOffsets", stream);
        known("startingTimestamp", stream);
        known("maxOffsetsPerTrigger", stream);
        known("maxPartitions", stream);
        known("pullBatchSize", stream);
        known("pullTimeoutMs", stream);
        known("fetchOffset.retryIntervalMs", stream);
        known("offsetPollIntervalMs", stream);
        known("failOnDataLoss", stream);
        known("includeProperties", stream);
        known("bodyDecodeError", stream);
        known("commitOffsets", stream);
        Set<Role> write = Set.of(Role.WRITE);
        known("topic", write);
        known("producerGroup", write);
        known("idempotencyKey", write);
        known("queueSelector", write);
        known("sendBatchMessages", write);
        known("sendBatchBytes", write);
        known("sendTimeoutMs", write);
        known("createTopic", write);
        known("ignoreExtraColumns", write);
    }

    /** Options of Spark itself that sources and sinks receive. */
    private static final Set<String> SPARKS_OWN = Set.of(
            "checkpointlocation",
            "queryname",
            "asyncprogresstrackingenabled",
            "asyncprogresstrackingcheckpointintervalms",
            "_asyncprogresstrackingoverridesinksupportcheck");

    private final Map<String, String> given = new LinkedHashMap<>();

    private static void known(String name, Set<Role> roles, String... also) {
        Known known = new Known(name, roles);
        KNOWN.put(name.toLowerCase(Locale.ROOT), known);
        for (String other : also) {
            KNOWN.put(other.toLowerCase(Locale.ROOT), known);
        }
    }

    /** Checks the names and values of options. */
    public Options(Map<String, String> options, Role role) {
        for (Map.Entry<String, String> option : options.entrySet()) {
            String key = option.getKey().toLowerCase(Locale.ROOT);
            if (SPARKS_OWN.contains(key)) {
                continue;
            }
            // `load("orders")` and `start("orders")` name the topic as a path.
            boolean isTopic = key.equals("topic") || key.equals("path");
            String name = isTopic ? (role == Role.STREAM ? "subscribe" : "topic") : checked(option.getKey(), role);
            String before = given.put(name, option.getValue().strip());
            if (before != null && !before.equals(option.getValue().strip())) {
                throw refused("'" + name + "' is set twice: to '" + before + "' and '" + option.getValue() + "'");
            }
        }
        if (!given.containsKey("nameserver")) {
            throw refused("'nameserver' is missing: add .option('nameserver', 'host:9876')");
        }
        if (role == Role.STREAM && !given.containsKey("subscribe")) {
            throw refused("'subscribe' is missing: add .option('subscribe', 'topic')");
        }
        if (given.containsKey("accessKey") != given.containsKey("secretKey")) {
            throw refused("'accessKey' and 'secretKey' belong together: set both");
        }
        checkValues(role);
    }

    private static String checked(String key, Role role) {
        Known known = KNOWN.get(key.toLowerCase(Locale.ROOT));
        if (known == null) {
            Set<String> names = new LinkedHashSet<>();
            KNOWN.values().stream().filter(each -> each.roles().contains(role)).forEach(each -> names.add(each.name()));
            throw refused("'" + key + "' is unknown to format " + RocketMQProvider.NAME + "; known are "
                    + String.join(", ", names) + ". Format rocketmq, in Python, may have it");
        }
        if (!known.roles().contains(role)) {
            throw refused("'" + known.name() + "' does not apply to " + (role == Role.WRITE ? "writes" : "reads"));
        }
        return known.name();
    }

    /** Reads every option once, so that a wrong value fails where the query is planned. */
    private void checkValues(Role role) {
        client();
        if (role == Role.STREAM) {
            topics();
            tags();
            startingTimestamp();
            maxOffsetsPerTrigger();
            maxPartitions(1);
            pullBatchSize();
            pullTimeoutMs();
            retryIntervalMs();
            offsetPollIntervalMs();
            failOnDataLoss();
            includeProperties();
            bodyDecodeError();
            commitOffsets();
        } else {
            idempotencyKey();
            queueSelector();
            sendBatchMessages();
            sendBatchBytes();
            sendTimeoutMs();
            createTopic();
            ignoreExtraColumns();
        }
    }

    // ---- both ------------------------------------------------------------------------------------------------

    /** Returns the place of the cluster and the identity at it. */
    public Client.Settings client() {
        List<String> servers = Arrays.stream(text("nameserver", "").split(";")).map(String::strip)
                .filter(each -> !each.isEmpty()).toList();
        if (servers.isEmpty() || !servers.stream().allMatch(each -> each.matches(".+:\\d{1,5}"))) {
            throw refused("'nameserver': expected host:port;host:port (got '" + text("nameserver", "") + "')");
        }
        Credentials credentials = new Credentials(text("accessKey", ""), text("secretKey", ""));
        return new Client.Settings(servers, credentials, tls(), count("requestTimeoutMs", 3000, 1));
    }

    private Tls tls() {
        if (!flag("tls", false)) {
            if (given.keySet().stream().anyMatch(name -> name.startsWith("tls."))) {
                throw refused("'tls.…' has no effect without encryption: set 'tls' to true");
            }
            return null;
        }
        if (given.containsKey("tls.certFile") != given.containsKey("tls.keyFile")) {
            throw refused("'tls.certFile' and 'tls.keyFile' belong together: set both");
        }
        return new Tls(text("tls.caFile", ""), text("tls.certFile", ""), text("tls.keyFile", ""),
                text("tls.serverName", ""), flag("tls.skipVerify", false));
    }

    /** Returns the name of a topic or group for servers: with its namespace. */
    public String wrapped(String name) {
        String namespace = text("namespace", "");
        return namespace.isEmpty() ? name : namespace + "%" + name;
    }

    // ---- reads -----------------------------------------------------------------------------------------------

    /** Returns the topics to read, without their namespace. */
    public List<String> topics() {
        List<String> topics = names("subscribe");
        if (topics.isEmpty()) {
            throw refused("'subscribe': it has no name in it");
        }
        return topics;
    }

    /** Returns the tags to read, or an empty list for all messages. */
    public List<String> tags() {
        String expression = text("subExpression", "*");
        if (expression.equals("*")) {
            return List.of();
        }
        List<String> tags = Arrays.stream(expression.split("\\|\\|")).map(String::strip)
                .filter(each -> !each.isEmpty()).toList();
        if (tags.isEmpty() || tags.stream().anyMatch(tag -> tag.matches(".*[\\s=<>()'].*"))) {
            throw refused("'subExpression': expected tags such as 'paid || refunded' (got '" + expression
                    + "'); filter by SQL with where()");
        }
        return tags;
    }

    public String consumerGroup() {
        return wrapped(text("consumerGroup", "spark-rocketmq"));
    }

    /** Returns `earliest`, `latest`, or JSON by topic, broker and queue. */
    public String startingOffsets() {
        return text("startingOffsets", "latest");
    }

    /** Returns the time to start at in milliseconds since 1970, or null. */
    public Long startingTimestamp() {
        String text = text("startingTimestamp", null);
        if (text == null) {
            return null;
        }
        try {
            return text.matches("\\d{1,18}") ? Long.valueOf(text) : Long.valueOf(moment(text).toEpochMilli());
        } catch (DateTimeParseException malformed) {
            throw refused("'startingTimestamp': expected milliseconds since 1970 or ISO-8601, such as "
                    + "2026-01-31T12:00:00Z (got '" + text + "')");
        }
    }

    private static Instant moment(String text) {
        try {
            return OffsetDateTime.parse(text).toInstant();
        } catch (DateTimeParseException withoutOffset) {
            return LocalDateTime.parse(text).toInstant(ZoneOffset.UTC);
        }
    }

    /** Returns the maximum number of offsets in a micro-batch. */
    public long maxOffsetsPerTrigger() {
        return count("maxOffsetsPerTrigger", Integer.MAX_VALUE, 1);
    }

    public boolean hasMaxOffsetsPerTrigger() {
        return given.containsKey("maxOffsetsPerTrigger");
    }

    public int maxPartitions(int usual) {
        return count("maxPartitions", usual, 1);
    }

    public int pullBatchSize() {
        return count("pullBatchSize", 4096, 1);
    }

    public int pullTimeoutMs() {
        return count("pullTimeoutMs", 10_000, 1);
    }

    public int retryIntervalMs() {
        return count("fetchOffset.retryIntervalMs", 100, 1);
    }

    public int offsetPollIntervalMs() {
        return count("offsetPollIntervalMs", 500, 1);
    }

    public boolean failOnDataLoss() {
        return flag("failOnDataLoss", true);
    }

    public boolean includeProperties() {
        return flag("includeProperties", true);
    }

    /** Returns `fail`, `null` or `replace`. */
    public String bodyDecodeError() {
        return choice("bodyDecodeError", "fail", "null", "replace");
    }

    public boolean commitOffsets() {
        return flag("commitOffsets", false);
    }

    // ---- writes ----------------------------------------------------------------------------------------------

    /** Returns the topic of all rows without its namespace, or null. */
    public String topic() {
        return text("topic", null);
    }

    public String producerGroup() {
        return wrapped(text("producerGroup", "spark-rocketmq-sink"));
    }

    /** Returns the columns that identify a row, or an empty list. */
    public List<String> idempotencyKey() {
        List<String> columns = names("idempotencyKey");
        if (columns.equals(List.of("position"))) {
            throw refused("'idempotencyKey': a row of a real-time batch has another position when the batch is "
                    + "repeated; name columns that identify it, such as topic,brokerName,queueId,queueOffset, or none");
        }
        return columns.equals(List.of("none")) ? List.of() : columns;
    }

    /** Returns `roundRobin`, `hash` or `column`. */
    public String queueSelector() {
        return choice("queueSelector", "roundRobin", "hash", "column");
    }

    public int sendBatchMessages() {
        return count("sendBatchMessages", 256, 1);
    }

    public int sendBatchBytes() {
        return count("sendBatchBytes", 128 << 10, 1);
    }

    public int sendTimeoutMs() {
        return count("sendTimeoutMs", 3000, 1);
    }

    public boolean createTopic() {
        return flag("createTopic", false);
    }

    public boolean ignoreExtraColumns() {
        return flag("ignoreExtraColumns", false);
    }

    // ---- values ----------------------------------------------------------------------------------------------

    private String text(String name, String usual) {
        String value = given.getOrDefault(name, usual);
        if (value != null && value.isEmpty() && given.containsKey(name)) {
            throw refused("'" + name + "': it is empty");
        }
        return value;
    }

    private List<String> names(String name) {
        List<String> found = new ArrayList<>();
        for (String each : given.getOrDefault(name, "").split(",")) {
            if (!each.isBlank() && !found.contains(each.strip())) {
                found.add(each.strip());
            }
        }
        return found;
    }

    private int count(String name, int usual, int least) {
        String value = given.get(name);
        if (value == null) {
            return usual;
        }
        if (!value.matches("\\d{1,9}") || Integer.parseInt(value) < least) {
            throw refused("'" + name + "': expected a whole number, at least " + least + " (got '" + value + "')");
        }
        return Integer.parseInt(value);
    }

    private boolean flag(String name, boolean usual) {
        String value = given.get(name);
        if (value == null) {
            return usual;
        }
        return switch (value.toLowerCase(Locale.ROOT)) {
            case "true" -> true;
            case "false" -> false;
            default -> throw refused("'" + name + "': expected true or false (got '" + value + "')");
        };
    }

    private String choice(String name, String... words) {
        String value = given.getOrDefault(name, words[0]);
        for (String word : words) {
            if (word.equalsIgnoreCase(value)) {
                return word;
            }
        }
        throw refused("'" + name + "': expected " + String.join(" or ", words) + " (got '" + value + "')");
    }

    private static IllegalArgumentException refused(String reason) {
        return new IllegalArgumentException("option " + reason);
    }
}
