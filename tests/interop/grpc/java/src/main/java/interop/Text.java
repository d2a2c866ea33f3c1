package interop;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;

/** The form of messages in arguments, and of results in the output. */
final class Text {
    private static final String PROPERTY = "property.";

    private Text() {
    }

    /** The message of an argument. */
    static Message described(MessageBuilder builder, String text) {
        List<String> keys = new ArrayList<>();
        for (String field : text.split("&")) {
            String[] parts = field.split("=", 2);
            String name = decoded(parts[0]);
            String value = decoded(parts[1]);
            switch (name) {
                case "body":
                    builder.setBody(value.getBytes(StandardCharsets.UTF_8));
                    break;
                case "size":
                    builder.setBody("x".repeat(Integer.parseInt(value)).getBytes(StandardCharsets.UTF_8));
                    break;
                case "key":
                    keys.add(value);
                    break;
                case "tag":
                    builder.setTag(value);
                    break;
                case "group":
                    builder.setMessageGroup(value);
                    break;
                case "in":
                    builder.setDeliveryTimestamp(System.currentTimeMillis() + Long.parseLong(value) * 1_000);
                    break;
                default:
                    builder.addProperty(name.substring(PROPERTY.length()), value);
            }
        }
        return keys.isEmpty() ? builder.build() : builder.setKeys(keys.toArray(new String[0])).build();
    }

    static Map<String, Object> object(Object... parts) {
        Map<String, Object> object = new TreeMap<>();
        for (int index = 0; index < parts.length; index += 2) {
            object.put((String) parts[index], parts[index + 1]);
        }
        return object;
    }

    static synchronized void print(Object value) {
        System.out.println(json(value));
        System.out.flush();
    }

    private static String decoded(String text) {
        return URLDecoder.decode(text, StandardCharsets.UTF_8);
    }

    private static String json(Object value) {
        List<String> parts = new ArrayList<>();
        if (value instanceof Map) {
            ((Map<?, ?>) value).forEach((name, part) -> parts.add(json(name) + ":" + json(part)));
            return "{" + String.join(",", parts) + "}";
        }
        if (value instanceof Collection) {
            ((Collection<?>) value).forEach(part -> parts.add(json(part)));
            return "[" + String.join(",", parts) + "]";
        }
        return value instanceof String ? quoted((String) value) : String.valueOf(value);
    }

    /** ASCII alone, because the encoding of the output depends on the machine. */
    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            if (one == '"' || one == '\\') {
                out.append('\\').append(one);
            } else if (one < ' ' || one > '~') {
                out.append(String.format("\\u%04x", (int) one));
            } else {
                out.append(one);
            }
        }
        return out.append('"').toString();
    }
}
