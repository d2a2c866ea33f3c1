package rmqpy.spark.sink;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import rmqpy.spark.remoting.Codes;
import rmqpy.spark.remoting.Request;
import rmqpy.spark.remoting.Route;

/** Requests that send messages of one topic to one queue. */
final class SendRequest {
    /** The topic whose permissions and brokers a new topic inherits. */
    static final String TEMPLATE = "TBW102";
    /** The number of queues of a new topic. */
    static final int NEW_TOPIC_QUEUES = 4;

    private SendRequest() {}

    /** Returns a request for one message as it is, or for several as a batch. */
    static Request of(String group, List<OutboundMessage> messages, Route.WritableQueue queue) {
        OutboundMessage first = messages.get(0);
        boolean isBatch = messages.size() > 1;
        Request request = isBatch
                ? new Request(Codes.SEND_BATCH_MESSAGE, batch(messages))
                : new Request(Codes.SEND_MESSAGE_V2, first.body());
        // The letters stand for: group, topic, template, its queues, queue, system flag, time, flag, properties, times
        // consumed, unit mode, batch, broker.
        request.with("a", group)
                .with("b", first.target().topic())
                .with("c", TEMPLATE)
                .with("d", NEW_TOPIC_QUEUES)
                .with("e", queue.queueId())
                .with("f", 0)
                .with("g", System.currentTimeMillis())
                .with("h", isBatch ? 0 : first.flag())
                .with("j", 0)
                .with("k", false)
                .with("m", isBatch)
                .with("n", queue.broker());
        if (!isBatch) {
            request.with("i", new String(first.properties(), StandardCharsets.UTF_8));
        }
        return request;
    }

    private static byte[] batch(List<OutboundMessage> messages) {
        ByteBuffer out = ByteBuffer.allocate(messages.stream().mapToInt(OutboundMessage::bytes).sum());
        for (OutboundMessage message : messages) {
            // The magic number and the checksum of a message in a batch are 0.
            out.putInt(message.bytes()).putInt(0).putInt(0).putInt(message.flag());
            out.putInt(message.body().length).put(message.body());
            out.putShort((short) message.properties().length).put(message.properties());
        }
        return out.array();
    }
}
