package rmqpy.spark.remoting;

import java.nio.ByteBuffer;
import java.util.Map;

/**
 * A response. The body is a view of the frame that was read.
 *
 * @param remark the reason of a refusal, or an empty text
 */
public record Response(int code, String remark, Map<String, String> fields, ByteBuffer body) {

    /** Returns a number of the header. Fails if the server left it out. */
    public long number(String name) throws RemotingException {
        String text = fields.get(name);
        try {
            return Long.parseLong(text);
        } catch (NumberFormatException malformed) {
            throw new RemotingException(
                    RemotingException.NO_ANSWER, "response without the number '" + name + "': " + text, malformed);
        }
    }

    /** Returns a number of the header, or a default if the server left it out. */
    public long number(String name, long missing) throws RemotingException {
        return fields.containsKey(name) ? number(name) : missing;
    }
}
