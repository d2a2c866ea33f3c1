package rmqpy.spark.remoting;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;

/**
 * A frame: its length, the length of its header, the header as JSON, and the body.
 *
 * @param opaque the number that a response repeats from its request
 */
record Frame(int opaque, boolean isResponse, Response response) {
    /** Maximum number of bytes behind the length field, as servers limit them. */
    static final int BYTES_MAX = (16 << 20) - Integer.BYTES;

    private static final int RESPONSE_BIT = 1;
    private static final int HEADER_LENGTH_MASK = 0xFF_FFFF;
    private static final int TYPE_SHIFT = 24;
    private static final int TYPE_JSON = 0;
    /** RocketMQ 5.2: name servers send such clients valid JSON. */
    private static final int VERSION = 479;

    private static final JsonFactory JSON = new JsonFactory();

    /** Returns the bytes of a request. */
    static byte[] encode(Request request, int opaque, Credentials credentials) throws RemotingException {
        ByteArrayOutputStream header = new ByteArrayOutputStream(256);
        try (JsonGenerator out = JSON.createGenerator(header)) {
            out.writeStartObject();
            out.writeNumberField("code", request.code());
            out.writeObjectFieldStart("extFields");
            for (Map.Entry<String, String> field : credentials.signed(request).entrySet()) {
                out.writeStringField(field.getKey(), field.getValue());
            }
            out.writeEndObject();
            out.writeNumberField("flag", 0);
            out.writeStringField("language", "JAVA");
            out.writeNumberField("opaque", opaque);
            out.writeStringField("serializeTypeCurrentRPC", "JSON");
            out.writeNumberField("version", VERSION);
            out.writeEndObject();
        } catch (IOException failure) {
            throw new RemotingException(RemotingException.NO_ANSWER, "cannot encode a request", failure);
        }
        int length = Integer.BYTES + header.size() + request.body().length;
        if (length > BYTES_MAX) {
            throw new RemotingException(
                    Codes.INVALID_PARAMETER, "a request of " + length + " bytes is larger than servers accept");
        }
        return ByteBuffer.allocate(Integer.BYTES + length)
                .putInt(length)
                .putInt(TYPE_JSON << TYPE_SHIFT | header.size())
                .put(header.toByteArray())
                .put(request.body())
                .array();
    }

    /** Decodes what follows the length of a frame. */
    static Frame decode(byte[] bytes) throws IOException {
        ByteBuffer frame = ByteBuffer.wrap(bytes);
        int head = frame.getInt();
        int length = head & HEADER_LENGTH_MASK;
        if (head >>> TYPE_SHIFT != TYPE_JSON || length > frame.remaining()) {
            throw new IOException("a frame of type " + (head >>> TYPE_SHIFT) + " with a header of " + length + " bytes");
        }
        int code = 0;
        int opaque = 0;
        int flag = 0;
        String remark = "";
        Map<String, String> fields = new HashMap<>();
        try (JsonParser in = JSON.createParser(bytes, frame.position(), length)) {
            if (in.nextToken() != JsonToken.START_OBJECT) {
                throw new IOException("a header that is not an object");
            }
            while (in.nextToken() == JsonToken.FIELD_NAME) {
                String name = in.currentName();
                JsonToken value = in.nextToken();
                switch (name) {
                    case "code" -> code = in.getValueAsInt();
                    case "opaque" -> opaque = in.getValueAsInt();
                    case "flag" -> flag = in.getValueAsInt();
                    case "remark" -> remark = in.getValueAsString("");
                    case "extFields" -> {
                        if (value == JsonToken.START_OBJECT) {
                            readFields(in, fields);
                        }
                    }
                    default -> in.skipChildren();
                }
            }
        }
        frame.position(frame.position() + length);
        return new Frame(opaque, (flag & RESPONSE_BIT) != 0, new Response(code, remark, fields, frame.slice()));
    }

    private static void readFields(JsonParser in, Map<String, String> fields) throws IOException {
        while (in.nextToken() == JsonToken.FIELD_NAME) {
            String name = in.currentName();
            if (in.nextToken().isScalarValue()) {
                fields.put(name, in.getValueAsString());
            } else {
                in.skipChildren();
            }
        }
    }
}
