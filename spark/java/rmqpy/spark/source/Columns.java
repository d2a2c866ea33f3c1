package rmqpy.spark.source;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import rmqpy.spark.remoting.Properties;
import rmqpy.spark.remoting.StoredMessage;

/** The columns of a read: checks a schema against the names and types here, and makes rows of messages. */
public final class Columns implements Serializable {
    private static final long serialVersionUID = 1L;

    /** The value of a column. Serializable, for executors. */
    @FunctionalInterface
    private interface Source extends Serializable {
        Object of(Queue queue, StoredMessage message);
    }

    private record Column(DataType type, Source source) {}

    private static final String BODY = "body";
    private static final String PROPERTIES = "properties";
    private static final String MAP = "map<string,string>";
    /** The columns of a default table. */
    private static final List<String> USUAL =
            List.of(
                    "topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", BODY, PROPERTIES, "flag",
                    "bornTimestamp", "storeTimestamp");

    /** Every column: its possible types, the default first. */
    private static final Map<String, List<Column>> COLUMNS = new LinkedHashMap<>();

    static {
        column("topic", "string", (queue, message) -> text(queue.topic()));
        column("brokerName", "string", (queue, message) -> text(queue.broker()));
        column("queueId", "int", (queue, message) -> queue.queueId());
        column("queueOffset", "bigint", (queue, message) -> message.queueOffset());
        column("msgId", "string", (queue, message) -> text(message.messageId()));
        column("tags", "string", (queue, message) -> text(message.properties().get(Properties.TAGS)));
        column("keys", "string", (queue, message) -> text(message.properties().get(Properties.KEYS)));
        column(BODY, "binary", (queue, message) -> message.body());
        column(PROPERTIES, MAP, (queue, message) -> map(message.properties()));
        column("flag", "int", (queue, message) -> message.flag());
        time("bornTimestamp", (queue, message) -> message.bornMs());
        time("storeTimestamp", (queue, message) -> message.storeMs());
        column("bornHost", "string", (queue, message) -> text(message.bornHost().text()));
        column("storeHost", "string", (queue, message) -> text(message.storeHost().text()));
        column("sysFlag", "int", (queue, message) -> message.sysFlag());
        column("reconsumeTimes", "int", (queue, message) -> message.reconsumeTimes());
        column("physicalOffset", "bigint", (queue, message) -> message.physicalOffset());
        column("storeSize", "int", (queue, message) -> message.storeSize());
        column("bodyCrc", "int", (queue, message) -> message.bodyCrc());
    }

    private final List<Source> sources = new ArrayList<>();

    /** Checks a schema. Fails for an unknown column, or a type that it cannot have. */
    Columns(StructType schema, String bodyDecodeError) {
        for (StructField field : schema.fields()) {
            List<Column> possible = COLUMNS.get(field.name());
            if (possible == null) {
                throw new IllegalArgumentException(
                        "unknown column '" + field.name() + "'; known are " + String.join(", ", COLUMNS.keySet()));
            }
            sources.add(source(field, possible, bodyDecodeError));
        }
    }

    /** Returns the default columns. The map of properties is optional: it costs more than all others. */
    public static StructType usual(boolean withProperties) {
        StructType schema = new StructType();
        for (String name : USUAL) {
            if (withProperties || !name.equals(PROPERTIES)) {
                schema = schema.add(name, COLUMNS.get(name).get(0).type());
            }
        }
        return schema;
    }

    /** Returns the row of a message. */
    InternalRow row(Queue queue, StoredMessage message) {
        Object[] values = new Object[sources.size()];
        for (int index = 0; index < values.length; index++) {
            values[index] = sources.get(index).of(queue, message);
        }
        return new GenericInternalRow(values);
    }

    private static Source source(StructField field, List<Column> possible, String bodyDecodeError) {
        if (field.name().equals(BODY) && field.dataType() instanceof StringType) {
            return bodyAsText(bodyDecodeError);
        }
        if (field.name().equals(PROPERTIES) && field.dataType() instanceof StructType chosen) {
            return chosenProperties(chosen);
        }
        for (Column column : possible) {
            if (column.type().sameType(field.dataType())) {
                return column.source();
            }
        }
        List<String> types = possible.stream().map(each -> each.type().simpleString()).toList();
        throw new IllegalArgumentException(
                "column '" + field.name() + "' cannot be " + field.dataType().simpleString() + " in this format; it can be "
                        + String.join(" or ", types));
    }

    private static Source bodyAsText(String decodeError) {
        return (queue, message) -> {
            UTF8String body = UTF8String.fromBytes(message.body());
            if (body.isValid()) {
                return body;
            }
            return switch (decodeError) {
                case "null" -> null;
                case "replace" -> body.makeValid();
                default -> throw new IllegalArgumentException(
                        "body of " + queue + " at offset " + message.queueOffset()
                                + " is not UTF-8; read it as binary, or set bodyDecodeError to null or replace");
            };
        };
    }

    /** Returns the source of a structure whose fields name properties. */
    private static Source chosenProperties(StructType chosen) {
        for (StructField field : chosen.fields()) {
            if (!(field.dataType() instanceof StringType)) {
                throw new IllegalArgumentException(
                        "property '" + field.name() + "' cannot be " + field.dataType().simpleString()
                                + ": properties are string; cast it");
            }
        }
        ArrayList<String> names = new ArrayList<>(List.of(chosen.fieldNames()));
        return (queue, message) -> {
            Object[] values = new Object[names.size()];
            for (int index = 0; index < values.length; index++) {
                values[index] = text(message.properties().get(names.get(index)));
            }
            return new GenericInternalRow(values);
        };
    }

    private static void column(String name, String type, Source source) {
        COLUMNS.computeIfAbsent(name, each -> new ArrayList<>()).add(new Column(DataType.fromDDL(type), source));
    }

    private static void time(String name, Source milliseconds) {
        column(name, "timestamp", (queue, message) -> microseconds((long) milliseconds.of(queue, message)));
        column(name, "bigint", milliseconds);
    }

    /** Returns Spark's form of a time. One out of range is the nearest valid one. */
    private static long microseconds(long milliseconds) {
        long limit = Long.MAX_VALUE / 1000;
        return Math.max(-limit, Math.min(limit, milliseconds)) * 1000;
    }

    private static UTF8String text(String value) {
        return value == null ? null : UTF8String.fromBytes(value.getBytes(StandardCharsets.UTF_8));
    }

    private static ArrayBasedMapData map(Map<String, String> properties) {
        Object[] names = new Object[properties.size()];
        Object[] values = new Object[names.length];
        int index = 0;
        for (Map.Entry<String, String> property : properties.entrySet()) {
            names[index] = text(property.getKey());
            values[index++] = text(property.getValue());
        }
        return new ArrayBasedMapData(new GenericArrayData(names), new GenericArrayData(values));
    }
}
