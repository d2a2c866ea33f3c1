package rmqpy.spark.source;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import rmqpy.spark.Options;
import rmqpy.spark.remoting.Client;
import rmqpy.spark.remoting.Codes;
import rmqpy.spark.remoting.RemotingException;
import rmqpy.spark.remoting.Request;
import rmqpy.spark.remoting.Response;

/**
 * The pulls of one range of a queue: at most one request is in flight, and at most one reply waits.
 *
 * <p>The task's thread calls everything here. Replies arrive in the inbox that it reads.
 */
final class QueuePull {
    private static final int SUSPEND = 2;
    private static final int SUBSCRIPTION = 4;
    /** Maximum size of a reply. Brokers return at least one message. */
    private static final int REPLY_BYTES_MAX = 1 << 20;
    /** The longest wait before a failed pull is repeated. */
    private static final long BACKOFF_MS_MAX = 1000;

    /** A reply, or the failure to get one. */
    record Reply(QueuePull pull, Response response, Throwable failure) {}

    final Range range;
    private final Client client;
    private final Options options;
    private final BlockingQueue<Reply> inbox;
    /** The offset of the next request. */
    private long next;
    /** The offset behind the last row that was passed on. */
    private long delivered;
    private boolean isInFlight;
    private int failures;
    private long dueNanos = System.nanoTime();

    QueuePull(Range range, Client client, Options options, BlockingQueue<Reply> inbox) {
        this.range = range;
        this.client = client;
        this.options = options;
        this.inbox = inbox;
        next = range.start();
        delivered = range.start();
    }

    /** Returns a pull. With a time to suspend, the broker holds it until there is a message. */
    static Request request(Options options, Queue queue, long offset, int messagesMax, long suspendMs) {
        String tags = options.tags().isEmpty() ? "*" : String.join("||", options.tags());
        return new Request(Codes.PULL_MESSAGE)
                .with("consumerGroup", options.consumerGroup())
                .with("topic", options.wrapped(queue.topic()))
                .with("queueId", queue.queueId())
                .with("queueOffset", offset)
                .with("maxMsgNums", messagesMax)
                .with("maxMsgBytes", REPLY_BYTES_MAX)
                .with("sysFlag", SUBSCRIPTION | (suspendMs > 0 ? SUSPEND : 0))
                .with("commitOffset", 0)
                .with("suspendTimeoutMillis", suspendMs)
                .with("subscription", tags)
                .with("expressionType", "TAG")
                .with("subVersion", 0)
                .with("bname", queue.broker());
    }

    long delivered() {
        return delivered;
    }

    boolean isFinished() {
        return delivered >= range.end();
    }

    int failures() {
        return failures;
    }

    /** Returns the time until the next request is due; 0 if it is now, and the maximum if none is. */
    long untilDueNanos() {
        return isInFlight || next >= range.end() ? Long.MAX_VALUE : Math.max(0, dueNanos - System.nanoTime());
    }

    /** Sends the next request. */
    void send(long suspendMs) {
        isInFlight = true;
        Request request = request(options, range.queue(), next, options.pullBatchSize(), suspendMs);
        String topic = options.wrapped(range.queue().topic());
        long timeoutMs = suspendMs > 0 ? suspendMs + client.requestTimeoutMs() : options.pullTimeoutMs();
        CompletableFuture<Response> answer = client.call(topic, range.queue().broker(), false, request, timeoutMs);
        answer.whenComplete((response, failure) -> inbox.add(new Reply(this, response, failure)));
    }

    /** Notes a reply: the next request begins at its offset. */
    void answered(long nextBegin) {
        isInFlight = false;
        failures = 0;
        next = nextBegin;
    }

    /** Notes a failure: the request is repeated after a wait that doubles. */
    void failed() {
        isInFlight = false;
        client.forget(options.wrapped(range.queue().topic()));
        long waitMs = Math.min(BACKOFF_MS_MAX, (long) options.retryIntervalMs() << Math.min(failures, 10));
        dueNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
        failures++;
    }

    /** Notes that all rows below an offset were passed on, or are not wanted. */
    void deliveredUpTo(long offset) {
        delivered = Math.max(delivered, Math.min(offset, range.end()));
    }

    /** Continues at an offset that may be below the current one, after a loss. */
    void jumpTo(long offset) {
        next = offset;
        delivered = Math.min(offset, range.end());
    }

    /** Returns the failure of a reply, or null. */
    static RemotingException failure(Reply reply) {
        if (reply.failure() != null) {
            return RemotingException.of(reply.failure());
        }
        return switch (reply.response().code()) {
            case Codes.SUCCESS, Codes.PULL_NOT_FOUND, Codes.PULL_RETRY_IMMEDIATELY, Codes.PULL_OFFSET_MOVED -> null;
            default -> new RemotingException(reply.response().code(), reply.response().remark());
        };
    }
}
