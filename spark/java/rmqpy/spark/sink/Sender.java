package rmqpy.spark.sink;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import rmqpy.spark.Options;
import rmqpy.spark.remoting.Client;
import rmqpy.spark.remoting.Clients;
import rmqpy.spark.remoting.Codes;
import rmqpy.spark.remoting.RemotingException;
import rmqpy.spark.remoting.Request;
import rmqpy.spark.remoting.Response;
import rmqpy.spark.remoting.Route;
import rmqpy.spark.sink.OutboundMessage.Target;

/**
 * The messages of one task on their way to brokers.
 *
 * <p>A message is sent when it arrives, unless a request to its target is in flight: then it joins the next one. So a
 * slow stream has no delay, a fast one has batches, and a queue keeps its order. A send is repeated until its timeout.
 *
 * <p>Threads: the task's thread adds, and waits while a target has a full request waiting. Answers come on threads of
 * connections. One lock guards everything, and is never held while waiting.
 */
final class Sender implements AutoCloseable {
    private static final long BACKOFF_MS_MAX = 500;
    private static final long BACKOFF_MS_FIRST = 10;

    /** Messages for one target: at most one request in flight, and one that fills. */
    private static final class Outbox {
        final Target target;
        final ArrayDeque<OutboundMessage> waiting = new ArrayDeque<>();
        long waitingBytes;
        boolean isInFlight;

        Outbox(Target target) {
            this.target = target;
        }
    }

    /** One send of a batch: its attempts until a deadline. */
    private record Send(Outbox outbox, List<OutboundMessage> messages, long deadlineNanos, AtomicInteger failures) {}

    private final Options options;
    private final Client client;
    private final int messagesMax;
    private final int bytesMax;
    private final Thread task = Thread.currentThread();
    private final Object lock = new Object();
    /** Targets with messages that wait or are in flight. */
    private final Map<Target, Outbox> outboxes = new HashMap<>();
    /** Where the turn through the queues of a topic stands. Tasks begin at different ones. */
    private final AtomicInteger turn = new AtomicInteger((int) (System.nanoTime() & 0xFFFF));
    private RemotingException failure;
    private boolean isClosed;

    Sender(Options options) {
        this.options = options;
        client = Clients.acquire(options.client());
        messagesMax = options.sendBatchMessages();
        bytesMax = options.sendBatchBytes();
    }

    /** Adds a message. Waits while its target has a full request waiting, and fails once a send has failed. */
    void add(OutboundMessage message) throws RemotingException {
        synchronized (lock) {
            Outbox outbox = outboxes.computeIfAbsent(message.target(), Outbox::new);
            while (failure == null && isFull(outbox)) {
                await();
            }
            throwFailure();
            // Another one may have taken its place while this thread waited.
            outbox = outboxes.computeIfAbsent(message.target(), Outbox::new);
            outbox.waiting.add(message);
            outbox.waitingBytes += message.bytes();
            if (!outbox.isInFlight) {
                sendNext(outbox);
            }
        }
    }

    /** Waits until brokers have stored all messages. Fails if they refused one. */
    void flush() throws RemotingException {
        synchronized (lock) {
            while (failure == null && !outboxes.isEmpty()) {
                await();
            }
            throwFailure();
        }
    }

    /** Fails with the failure of a send, if there was one. */
    void throwFailure() throws RemotingException {
        synchronized (lock) {
            if (failure != null) {
                throw new RemotingException(failure.code(), failure.getMessage(), failure);
            }
        }
    }

    /** Drops what waits. Requests in flight end by their timeouts. */
    @Override
    public void close() {
        synchronized (lock) {
            if (!isClosed) {
                isClosed = true;
                outboxes.clear();
                if (failure != null && Thread.currentThread() == task) {
                    // The interrupt was for this task, and the thread runs others.
                    Thread.interrupted();
                }
                Clients.release(options.client());
            }
        }
    }

    private boolean isFull(Outbox outbox) {
        return outbox.isInFlight && (outbox.waiting.size() >= messagesMax || outbox.waitingBytes >= bytesMax);
    }

    private void await() throws RemotingException {
        try {
            lock.wait();
        } catch (InterruptedException interrupt) {
            throwFailure();
            Thread.currentThread().interrupt();
            throw new RemotingException(RemotingException.NO_ANSWER, "interrupted while sending", interrupt);
        }
    }

    /** Sends what waits, as much as fits into a request. */
    private void sendNext(Outbox outbox) {
        List<OutboundMessage> messages = new ArrayList<>();
        long bytes = 0;
        while (!outbox.waiting.isEmpty() && messages.size() < messagesMax) {
            OutboundMessage next = outbox.waiting.peek();
            boolean fits = bytes + next.bytes() <= bytesMax && !next.isAlone();
            if (!messages.isEmpty() && !fits) {
                break;
            }
            messages.add(outbox.waiting.remove());
            bytes += next.bytes();
            if (next.isAlone()) {
                break;
            }
        }
        outbox.waitingBytes -= bytes;
        outbox.isInFlight = true;
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(options.sendTimeoutMs());
        attempt(new Send(outbox, messages, deadline, new AtomicInteger()));
    }

    private void attempt(Send send) {
        String topic = send.outbox().target.topic();
        long leftMs = TimeUnit.NANOSECONDS.toMillis(send.deadlineNanos() - System.nanoTime());
        long timeoutMs = Math.max(1, Math.min(leftMs, client.requestTimeoutMs()));
        publishRoute(topic)
                .thenCompose(
                        route -> {
                            Route.WritableQueue queue = choose(route, send.outbox().target);
                            Request request = SendRequest.of(options.producerGroup(), send.messages(), queue);
                            return client.call(route.topic(), queue.broker(), true, request, timeoutMs);
                        })
                .whenComplete((response, problem) -> answered(send, response, problem));
    }

    /** Returns the route of a topic, or that of the template for a topic to create. */
    private CompletableFuture<Route> publishRoute(String topic) {
        CompletableFuture<Route> route = client.route(topic);
        if (!options.createTopic()) {
            return route;
        }
        return route.exceptionallyCompose(
                failed -> {
                    RemotingException reason = RemotingException.of(failed);
                    return reason.code() == Codes.TOPIC_NOT_EXIST
                            ? client.route(SendRequest.TEMPLATE)
                            : CompletableFuture.failedFuture(reason);
                });
    }

    private Route.WritableQueue choose(Route route, Target target) {
        boolean isNew = route.topic().equals(SendRequest.TEMPLATE);
        List<Route.WritableQueue> queues = route.writable(isNew ? SendRequest.NEW_TOPIC_QUEUES : Integer.MAX_VALUE);
        if (target.kind() == OutboundMessage.Kind.NAMED) {
            return queues.stream()
                    .filter(each -> each.queueId() == target.queueId())
                    .filter(each -> target.broker() == null || target.broker().equals(each.broker()))
                    .findFirst()
                    .orElseThrow(() -> noQueue("no queue " + target.queueId() + " of topic '" + target.topic() + "'"
                            + (target.broker() == null ? "" : " on broker '" + target.broker() + "'")
                            + " accepts messages"));
        }
        if (queues.isEmpty()) {
            throw noQueue("no queue of topic '" + target.topic() + "' accepts messages");
        }
        int index = target.kind() == OutboundMessage.Kind.HASH ? Math.abs(target.hash() % queues.size())
                : Math.floorMod(turn.getAndIncrement(), queues.size());
        return queues.get(index);
    }

    /** Returns a failure that passes when a master is back. */
    private static CompletionException noQueue(String reason) {
        return new CompletionException(new RemotingException(RemotingException.NO_ANSWER, reason));
    }

    private void answered(Send send, Response response, Throwable problem) {
        RemotingException reason = problem != null ? RemotingException.of(problem) : refusal(response);
        // Name servers forget a topic while its only broker is away.
        boolean mayPass = reason != null && (reason.isRetriable() || reason.code() == Codes.TOPIC_NOT_EXIST);
        synchronized (lock) {
            if (isClosed) {
                return;
            }
            if (reason == null) {
                stored(send.outbox());
            } else if (mayPass && System.nanoTime() < send.deadlineNanos()) {
                client.forget(send.outbox().target.topic());
                long waitMs = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_FIRST << Math.min(send.failures().getAndIncrement(), 10));
                CompletableFuture.delayedExecutor(waitMs, TimeUnit.MILLISECONDS).execute(() -> attempt(send));
            } else if (failure == null) {
                fail(send, reason);
            }
            lock.notifyAll();
        }
    }

    private void stored(Outbox outbox) {
        outbox.isInFlight = false;
        if (outbox.waiting.isEmpty()) {
            outboxes.remove(outbox.target);
        } else {
            sendNext(outbox);
        }
    }

    private void fail(Send send, RemotingException reason) {
        String topic = send.outbox().target.topic();
        String hint = reason.code() == Codes.TOPIC_NOT_EXIST
                ? "; set createTopic=true to create it with its first message"
                : "";
        failure = new RemotingException(
                reason.code(), "cannot send to topic '" + topic + "': " + reason.getMessage() + hint, reason);
        // A real-time task waits for messages for minutes, and would not notice.
        task.interrupt();
    }

    /** Returns why a broker did not store messages, or null. Replicas that lag are a matter of its settings. */
    private static RemotingException refusal(Response response) {
        return switch (response.code()) {
            case Codes.SUCCESS, Codes.FLUSH_DISK_TIMEOUT, Codes.FLUSH_SLAVE_TIMEOUT, Codes.SLAVE_NOT_AVAILABLE -> null;
            default -> new RemotingException(response.code(), response.remark());
        };
    }
}
