package rmqpy.spark.sink;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import rmqpy.spark.Options;
import rmqpy.spark.remoting.Properties;
import rmqpy.spark.sink.OutboundMessage.Target;

/** The columns of the sink: checks them where the query is planned, and makes messages of rows. */
final class RowMessages implements Serializable {
    private static final long serialVersionUID = 1L;

    /** Possible types by column, and the aliases of columns. */
    private static final Map<String, List<String>> TYPES = new LinkedHashMap<>();
    private static final Map<String, String> ALIASES = Map.of("value", "body", "key", "keys", "headers", "properties",
            "partition", "queueId");

    static {
        TYPES.put("body", List.of("binary", "string"));
        TYPES.put("topic", List.of("string"));
        TYPES.put("tags", List.of("string"));
        TYPES.put("keys", List.of("string", "array<string>"));
        TYPES.put("properties", List.of("map<string,string>"));
        TYPES.put("shardingKey", List.of("string"));
        TYPES.put("queueId", List.of("int"));
        TYPES.put("brokerName", List.of("string"));
        TYPES.put("delayLevel", List.of("int"));
        TYPES.put("deliverTimestamp", List.of("timestamp", "bigint"));
        TYPES.put("flag", List.of("int"));
        TYPES.put("msgId", List.of("string"));
    }

    private final Options options;
    private final StructType schema;
    private final String queryId;
    /** The place of each known column in a row. */
    private final HashMap<String, Integer> places = new HashMap<>();
    private final int[] identity;

    /** Checks the columns of a query. */
    RowMessages(StructType schema, Options options, String queryId) {
        this.options = options;
        this.schema = schema;
        this.queryId = queryId;
        for (int place = 0; place < schema.length(); place++) {
            add(schema.fields()[place], place);
        }
        if (!places.containsKey("body")) {
            throw refused("column 'body' is missing; rename a column to 'body' or 'value'");
        }
        if (!places.containsKey("topic") && options.topic() == null) {
            throw refused("the topic is missing; set the option 'topic', or add a column of that name");
        }
        String selector = options.queueSelector();
        if (selector.equals("column") && !places.containsKey("queueId")) {
            throw refused("queueSelector=column needs a column 'queueId'");
        }
        if (selector.equals("hash") && !places.containsKey("shardingKey") && !places.containsKey("keys")) {
            throw refused("queueSelector=hash needs a column 'shardingKey' or 'keys'");
        }
        identity = options.idempotencyKey().stream().mapToInt(this::identifying).toArray();
    }

    private void add(StructField field, int place) {
        String name = TYPES.keySet().stream().filter(field.name()::equalsIgnoreCase).findFirst()
                .orElse(ALIASES.get(field.name().toLowerCase(Locale.ROOT)));
        if (name == null) {
            if (!options.ignoreExtraColumns() && !options.idempotencyKey().contains(field.name())) {
                throw refused("column '" + field.name() + "' is not part of a message; the sink accepts "
                        + String.join(", ", TYPES.keySet()) + ". Drop it, or set ignoreExtraColumns=true");
            }
            return;
        }
        String type = field.dataType().simpleString();
        if (!TYPES.get(name).contains(type)) {
            throw refused("column '" + field.name() + "' cannot be " + type + "; it can be "
                    + String.join(" or ", TYPES.get(name)) + ": cast it");
        }
        if (places.put(name, place) != null) {
            throw refused("two columns are '" + name + "'; drop one of them");
        }
    }

    private int identifying(String name) {
        int place = Arrays.asList(schema.fieldNames()).indexOf(name);
        if (place < 0) {
            throw refused("option 'idempotencyKey' names '" + name + "', which is not a column");
        }
        DataType type = schema.fields()[place].dataType();
        if (type instanceof StructType || type instanceof ArrayType || type instanceof MapType) {
            throw refused("column '" + name + "' of type " + type.simpleString()
                    + " cannot identify a row; name columns of its parts");
        }
        return place;
    }

    /** Returns the message of a row. Fails for a row that brokers would refuse. */
    OutboundMessage message(InternalRow row) {
        byte[] body = bytes(row, "body");
        if (body == null || body.length == 0) {
            throw refused("a row cannot be sent: its body is null or empty, which brokers refuse");
        }
        String topic = options.topic() != null ? options.topic() : text(row, "topic");
        if (topic == null) {
            throw refused("a row cannot be sent: its topic is null");
        }
        Map<String, String> properties = new LinkedHashMap<>();
        String keys = keys(row);
        String shardingKey = text(row, "shardingKey");
        if (has(row, "properties")) {
            addProperties(row.getMap(places.get("properties")), properties);
        }
        put(properties, Properties.KEYS, keys);
        put(properties, Properties.TAGS, text(row, "tags"));
        put(properties, Properties.SHARDING_KEY, shardingKey);
        boolean isDelayed = addDelivery(row, properties);
        put(properties, Properties.UNIQ_KEY, id(row, topic));
        properties.put(Properties.WAIT, "true");
        byte[] encoded = Properties.format(properties);
        if (encoded.length > Properties.BYTES_MAX) {
            throw refused("a row cannot be sent: its properties have " + encoded.length + " bytes, and messages at most "
                    + Properties.BYTES_MAX);
        }
        int flag = has(row, "flag") ? row.getInt(places.get("flag")) : 0;
        return new OutboundMessage(target(row, options.wrapped(topic), shardingKey, keys), flag, body, encoded, isDelayed);
    }

    private Target target(InternalRow row, String topic, String shardingKey, String keys) {
        if (has(row, "queueId")) {
            return Target.named(topic, text(row, "brokerName"), row.getInt(places.get("queueId")));
        }
        String key = shardingKey == null && options.queueSelector().equals("hash") ? keys : shardingKey;
        if (key != null) {
            return Target.ofKey(topic, key);
        }
        return switch (options.queueSelector()) {
            case "hash" -> throw refused("a row cannot be sent: it has neither shardingKey nor keys");
            case "column" -> throw refused("a row cannot be sent: its queueId is null");
            default -> Target.any(topic);
        };
    }

    private boolean addDelivery(InternalRow row, Map<String, String> properties) {
        boolean hasLevel = has(row, "delayLevel");
        boolean hasTime = has(row, "deliverTimestamp");
        if (hasLevel && hasTime) {
            throw refused("a row cannot be sent: give one of delayLevel and deliverTimestamp");
        }
        if (hasLevel) {
            properties.put(Properties.DELAY, Integer.toString(row.getInt(places.get("delayLevel"))));
        }
        if (hasTime) {
            int place = places.get("deliverTimestamp");
            boolean isMicroseconds = schema.fields()[place].dataType().sameType(DataTypes.TimestampType);
            long ms = isMicroseconds ? Math.floorDiv(row.getLong(place), 1000) : row.getLong(place);
            properties.put(Properties.DELIVER_MS, Long.toString(ms));
        }
        return hasLevel || hasTime;
    }

    private static void addProperties(MapData map, Map<String, String> properties) {
        ArrayData names = map.keyArray();
        ArrayData values = map.valueArray();
        for (int index = 0; index < map.numElements(); index++) {
            if (!values.isNullAt(index)) {
                String name = names.getUTF8String(index).toString();
                Properties.checkName(name);
                put(properties, name, values.getUTF8String(index).toString());
            }
        }
    }

    private static void put(Map<String, String> properties, String name, String value) {
        if (value != null && !value.isEmpty()) {
            properties.put(name, Properties.check(name, value));
        }
    }

    private String keys(InternalRow row) {
        if (!has(row, "keys")) {
            return null;
        }
        int place = places.get("keys");
        if (!(schema.fields()[place].dataType() instanceof ArrayType)) {
            return row.getUTF8String(place).toString();
        }
        StringBuilder joined = new StringBuilder();
        ArrayData elements = row.getArray(place);
        for (int index = 0; index < elements.numElements(); index++) {
            if (!elements.isNullAt(index)) {
                String key = elements.getUTF8String(index).toString();
                if (key.chars().anyMatch(Character::isWhitespace)) {
                    throw refused("a row cannot be sent: the key '" + key + "' has white space in it");
                }
                joined.append(joined.isEmpty() ? "" : " ").append(key);
            }
        }
        return joined.toString();
    }

    /** Returns the id of a row: the given one, one of its identity, or a new one. */
    private String id(InternalRow row, String topic) {
        String given = text(row, "msgId");
        if (given != null) {
            return given;
        }
        if (identity.length == 0) {
            return UniqueIds.next();
        }
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            add(digest, queryId);
            add(digest, topic);
            for (int place : identity) {
                Object value = row.isNullAt(place) ? null : row.get(place, schema.fields()[place].dataType());
                add(digest, value instanceof byte[] bytes ? HexFormat.of().formatHex(bytes) : value);
            }
            return HexFormat.of().withUpperCase().formatHex(digest.digest(), 0, 16);
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException("every Java has SHA-256", impossible);
        }
    }

    /** Adds a value after its length, so that different rows have different texts. */
    private static void add(MessageDigest digest, Object value) {
        byte[] text = String.valueOf(value).getBytes(StandardCharsets.UTF_8);
        digest.update(((value == null ? "-" : Integer.toString(text.length)) + ":").getBytes(StandardCharsets.UTF_8));
        digest.update(text);
    }

    private boolean has(InternalRow row, String name) {
        Integer place = places.get(name);
        return place != null && !row.isNullAt(place);
    }

    private String text(InternalRow row, String name) {
        return has(row, name) ? row.getUTF8String(places.get(name)).toString() : null;
    }

    private byte[] bytes(InternalRow row, String name) {
        if (!has(row, name)) {
            return null;
        }
        int place = places.get(name);
        if (schema.fields()[place].dataType().sameType(DataTypes.BinaryType)) {
            return row.getBinary(place);
        }
        UTF8String text = row.getUTF8String(place);
        return text.getBytes();
    }

    private static IllegalArgumentException refused(String reason) {
        return new IllegalArgumentException(reason);
    }
}
