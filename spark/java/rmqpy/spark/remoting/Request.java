package rmqpy.spark.remoting;

import java.util.Map;
import java.util.TreeMap;

/** A request: its code, the fields of its header, and a body. */
public final class Request {
    private static final byte[] NO_BODY = new byte[0];

    private final int code;
    /** Sorted by name, as signatures need them. */
    private final TreeMap<String, String> fields = new TreeMap<>();
    private final byte[] body;

    public Request(int code, byte[] body) {
        this.code = code;
        this.body = body;
    }

    public Request(int code) {
        this(code, NO_BODY);
    }

    /** Adds a field and returns this request. */
    public Request with(String name, Object value) {
        fields.put(name, String.valueOf(value));
        return this;
    }

    int code() {
        return code;
    }

    Map<String, String> fields() {
        return fields;
    }

    byte[] body() {
        return body;
    }
}
