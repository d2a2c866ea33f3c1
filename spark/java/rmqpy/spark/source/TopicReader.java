package rmqpy.spark.source;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import rmqpy.spark.Options;
import rmqpy.spark.remoting.Client;
import rmqpy.spark.remoting.Clients;
import rmqpy.spark.remoting.Codes;
import rmqpy.spark.remoting.Properties;
import rmqpy.spark.remoting.RemotingException;
import rmqpy.spark.remoting.StoredMessage;

/**
 * Reads the ranges of a task, several queues at a time. Rows of a queue keep their order.
 *
 * <p>Owned by the task's thread. Its memory is bounded by one reply for each queue, and one that becomes rows.
 */
class TopicReader implements PartitionReader<InternalRow> {
    private static final Logger LOG = LoggerFactory.getLogger(TopicReader.class);
    /** Maximum number of failures in a row of one pull in a micro-batch. A real-time batch waits for its brokers. */
    private static final int FAILURES_MAX = 3;

    private final Options options;
    private final Columns columns;
    private final List<String> tags;
    private final List<QueuePull> pulls = new ArrayList<>();
    /** Bounded by the number of queues: each has at most one request. */
    private final LinkedBlockingQueue<QueuePull.Reply> inbox = new LinkedBlockingQueue<>();

    private QueuePull current;
    private long currentEnd;
    private Iterator<StoredMessage> messages = Collections.emptyIterator();
    private StoredMessage message;
    private boolean isClosed;

    TopicReader(Task task, Options options, Columns columns) {
        this.options = options;
        this.columns = columns;
        tags = options.tags();
        Client client = Clients.acquire(options.client());
        for (Range range : task.ranges()) {
            pulls.add(new QueuePull(range, client, options, inbox));
        }
        // Spark 4.1 does not close readers of real-time batches.
        TaskContext context = TaskContext.get();
        if (context != null) {
            context.addTaskCompletionListener((TaskCompletionListener) ended -> close());
        }
    }

    @Override
    public boolean next() throws IOException {
        return advance(Long.MAX_VALUE);
    }

    @Override
    public InternalRow get() {
        return columns.row(current.range.queue(), message);
    }

    @Override
    public void close() {
        if (!isClosed) {
            isClosed = true;
            Clients.release(options.client());
        }
    }

    /** Returns the time when the broker stored the current message, in milliseconds. */
    long storedMs() {
        return message.storeMs();
    }

    List<QueuePull> pulls() {
        return pulls;
    }

    /** Moves to the next message. Returns false at the end of all ranges, or, if that is bounded, after a time. */
    boolean advance(long timeoutNanos) throws IOException {
        long began = System.nanoTime();
        while (true) {
            if (nextOfReply()) {
                return true;
            }
            long leftNanos = timeoutNanos == Long.MAX_VALUE
                    ? Long.MAX_VALUE
                    : timeoutNanos - (System.nanoTime() - began);
            if (leftNanos <= 0 || timeoutNanos == Long.MAX_VALUE && pulls.stream().allMatch(QueuePull::isFinished)) {
                return false;
            }
            QueuePull.Reply reply = awaitReply(leftNanos);
            if (reply != null) {
                accept(reply);
                // The next reply of the queue travels while these rows are processed.
                sendDue(leftNanos);
            }
        }
    }

    /** Moves to the next wanted message of the current reply. */
    private boolean nextOfReply() {
        while (messages.hasNext()) {
            message = messages.next();
            long offset = message.queueOffset();
            if (offset >= current.range.end()) {
                break;
            }
            if (offset >= current.delivered()) {
                current.deliveredUpTo(offset + 1);
                if (tags.isEmpty() || tags.contains(message.properties().get(Properties.TAGS))) {
                    return true;
                }
            }
        }
        if (current != null) {
            // Messages that the broker's filter left out are done as well.
            current.deliveredUpTo(currentEnd);
            messages = Collections.emptyIterator();
            current = null;
        }
        return false;
    }

    /** Sends what is due, and returns a reply; null if none comes before the timeout, or before a pull is repeated. */
    private QueuePull.Reply awaitReply(long timeoutNanos) throws InterruptedIOException {
        long waitNanos = sendDue(timeoutNanos);
        try {
            return waitNanos == Long.MAX_VALUE ? inbox.take() : inbox.poll(waitNanos, TimeUnit.NANOSECONDS);
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while waiting for messages");
        }
    }

    /** Sends requests that are due. Returns the time until the next one is, or the timeout if that is sooner. */
    private long sendDue(long timeoutNanos) {
        long waitNanos = timeoutNanos;
        for (QueuePull pull : pulls) {
            long dueNanos = pull.untilDueNanos();
            if (dueNanos == 0) {
                pull.send(suspendMs(pull, timeoutNanos));
            } else {
                waitNanos = Math.min(waitNanos, dueNanos);
            }
        }
        return waitNanos;
    }

    /** Returns how long a broker holds a pull without messages. A bounded range has all of its messages. */
    private long suspendMs(QueuePull pull, long timeoutNanos) {
        if (pull.range.end() != Range.OPEN) {
            return 0;
        }
        return Math.max(1, Math.min(options.pullTimeoutMs(), TimeUnit.NANOSECONDS.toMillis(timeoutNanos)));
    }

    private void accept(QueuePull.Reply reply) throws IOException {
        QueuePull pull = reply.pull();
        RemotingException failure = QueuePull.failure(reply);
        if (failure != null) {
            retry(pull, failure);
            return;
        }
        int code = reply.response().code();
        long nextBegin = reply.response().number("nextBeginOffset");
        boolean isEmpty = code != Codes.SUCCESS && code != Codes.PULL_OFFSET_MOVED && nextBegin <= pull.delivered();
        boolean wasHeld = pull.range.end() == Range.OPEN && code == Codes.PULL_NOT_FOUND;
        if (isEmpty && !wasHeld) {
            retry(pull, new RemotingException(Codes.PULL_NOT_FOUND, "it has no message at " + pull.delivered()));
            return;
        }
        pull.answered(nextBegin);
        if (code == Codes.PULL_OFFSET_MOVED) {
            moved(pull, nextBegin);
        } else {
            current = pull;
            currentEnd = nextBegin;
            if (code == Codes.SUCCESS) {
                messages = StoredMessage.decode(reply.response().body(), pull.range.queue().topic()).iterator();
            }
        }
    }

    private void retry(QueuePull pull, RemotingException failure) throws RemotingException {
        boolean mayPass = failure.isRetriable()
                || failure.code() == Codes.TOPIC_NOT_EXIST
                || failure.code() == Codes.PULL_NOT_FOUND;
        boolean isPatient = pull.range.end() == Range.OPEN || pull.failures() < FAILURES_MAX;
        String text = "cannot read " + pull.range.queue() + " at " + pull.delivered() + ": " + failure.getMessage();
        if (!mayPass || !isPatient) {
            throw new RemotingException(failure.code(), text, failure);
        }
        if (pull.failures() == 0) {
            LOG.warn("{}; trying again", text);
        }
        pull.failed();
    }

    /** Handles an offset that the broker does not hold. */
    private void moved(QueuePull pull, long nextBegin) throws DataLoss {
        String text = nextBegin > pull.delivered()
                ? "queue " + pull.range.queue() + ": requested " + pull.delivered() + ", but the broker holds " + nextBegin
                        + " and later"
                : "queue " + pull.range.queue() + " ends at " + nextBegin + ", but the query was at " + pull.delivered()
                        + ": it was recreated or truncated";
        DataLoss.report(List.of(text), options, LOG);
        pull.jumpTo(nextBegin);
    }
}
