package rmqpy.spark.remoting;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

/** Properties of messages: text of the form `name 0x01 value 0x02`, repeated. */
public final class Properties {
    public static final String KEYS = "KEYS";
    public static final String TAGS = "TAGS";
    public static final String UNIQ_KEY = "UNIQ_KEY";
    public static final String SHARDING_KEY = "__SHARDINGKEY";
    public static final String DELAY = "DELAY";
    public static final String DELIVER_MS = "TIMER_DELIVER_MS";
    public static final String WAIT = "WAIT";

    /** Maximum length of all properties of a message: its field is a signed 16-bit number. */
    public static final int BYTES_MAX = Short.MAX_VALUE;

    private static final char VALUE_FOLLOWS = 1;
    private static final char ENTRY_ENDS = 2;

    /** Names that only brokers and clients' libraries write, by RocketMQ's list. */
    private static final Set<String> RESERVED =
            Set.of(
                    ("KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET "
                                    + "BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME "
                                    + "MSG_REGION TRACE_ON UNIQ_KEY EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES "
                                    + "CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME TRAN_PREPARED_QUEUE_OFFSET "
                                    + "DUP_INFO INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME "
                                    + "PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_SEC "
                                    + "TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS "
                                    + "TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP "
                                    + "__CRC32# DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID _SYS_MSG_PRIORITY_")
                            .split(" "));

    private Properties() {}

    /** Parses properties. Entries without a name or a value are left out, as by RocketMQ's clients. */
    static Map<String, String> parse(byte[] bytes, int from, int length) {
        Map<String, String> found = new LinkedHashMap<>();
        int end = from + length;
        for (int start = from; start < end; ) {
            int stop = indexOf(bytes, start, end, (byte) ENTRY_ENDS);
            int middle = indexOf(bytes, start, stop, (byte) VALUE_FOLLOWS);
            if (middle > start && middle + 1 < stop) {
                found.put(text(bytes, start, middle), text(bytes, middle + 1, stop));
            }
            start = stop + 1;
        }
        return found;
    }

    /** Formats properties. Values must have passed {@link #check}. */
    public static byte[] format(Map<String, String> properties) {
        StringBuilder out = new StringBuilder(128);
        properties.forEach(
                (name, value) -> out.append(name).append(VALUE_FOLLOWS).append(value).append(ENTRY_ENDS));
        return out.toString().getBytes(StandardCharsets.UTF_8);
    }

    /** Fails for a name that applications must not set. */
    public static void checkName(String name) {
        if (name.isBlank() || RESERVED.contains(name)) {
            throw new IllegalArgumentException(
                    "property '" + name + "' is reserved for RocketMQ; use another name, or the column for it");
        }
        check(name, name);
    }

    /** Fails for a value that the format cannot hold. */
    public static String check(String name, String value) {
        if (value.indexOf(VALUE_FOLLOWS) >= 0 || value.indexOf(ENTRY_ENDS) >= 0) {
            throw new IllegalArgumentException("property '" + name + "' has a character U+0001 or U+0002");
        }
        return value;
    }

    private static int indexOf(byte[] bytes, int from, int end, byte wanted) {
        int at = from;
        while (at < end && bytes[at] != wanted) {
            at++;
        }
        return at;
    }

    private static String text(byte[] bytes, int from, int end) {
        return new String(bytes, from, end - from, StandardCharsets.UTF_8);
    }
}
