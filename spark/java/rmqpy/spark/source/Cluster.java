package rmqpy.spark.source;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import rmqpy.spark.Options;
import rmqpy.spark.remoting.Client;
import rmqpy.spark.remoting.Codes;
import rmqpy.spark.remoting.RemotingException;
import rmqpy.spark.remoting.Request;
import rmqpy.spark.remoting.Response;
import rmqpy.spark.remoting.Route;

/** The driver's view of a cluster: the queues of a stream, and the offsets that brokers hold. One thread at a time. */
final class Cluster {
    private static final int ONE_MESSAGE = 1;
    /** Maximum number of attempts to look up where a new query begins. */
    private static final int ATTEMPTS_MAX = 4;

    private final Client client;
    private final Options options;
    /** Pulls that wait for the next message of an idle queue. They are kept from one wait to the next. */
    private final Map<Queue, CompletableFuture<Response>> watches = new HashMap<>();

    Cluster(Client client, Options options) {
        this.client = client;
        this.options = options;
    }

    /**
     * The readable queues of the topics, and the brokers that name servers listed with them.
     *
     * @param brokers names of brokers with queues, by topic
     */
    record Queues(TreeSet<Queue> all, Map<String, TreeSet<String>> brokers) {
        /** Returns whether a queue that is not readable was removed: its broker is there, and does not list it. */
        boolean isGone(Queue queue) {
            return !all.contains(queue) && brokers.getOrDefault(queue.topic(), new TreeSet<>()).contains(queue.broker());
        }
    }

    /** Returns the current queues. A topic without a route is left out, or fails if `needsAll`. */
    Queues queues(boolean needsAll) throws RemotingException {
        Map<String, CompletableFuture<Route>> asked = new TreeMap<>();
        for (String topic : options.topics()) {
            asked.put(topic, client.freshRoute(options.wrapped(topic)));
        }
        Queues found = new Queues(new TreeSet<>(), new HashMap<>());
        for (Map.Entry<String, CompletableFuture<Route>> each : asked.entrySet()) {
            String topic = each.getKey();
            try {
                for (Route.QueueData data : RemotingException.await(each.getValue()).queues()) {
                    found.brokers().computeIfAbsent(topic, name -> new TreeSet<>()).add(data.broker());
                    for (int id = 0; id < data.readable(); id++) {
                        found.all().add(new Queue(topic, data.broker(), id));
                    }
                }
            } catch (RemotingException failure) {
                boolean isMissing = failure.code() == Codes.TOPIC_NOT_EXIST;
                if (needsAll || !(isMissing || failure.isRetriable())) {
                    throw failure;
                }
            }
        }
        return found;
    }

    /** Returns the offsets that brokers hold. Leaves out the queues of brokers that do not answer. */
    SortedMap<Queue, Held> held(Collection<Queue> queues) throws RemotingException {
        Map<Queue, CompletableFuture<Held>> asked = new TreeMap<>();
        for (Queue queue : queues) {
            CompletableFuture<Long> begin = number(queue, Codes.GET_MIN_OFFSET, null);
            asked.put(queue, begin.thenCombine(number(queue, Codes.GET_MAX_OFFSET, null), Held::new));
        }
        return answered(asked);
    }

    /** Returns the same, and asks again for queues of brokers that do not answer, a few times. */
    SortedMap<Queue, Held> heldPatiently(Collection<Queue> queues) throws RemotingException {
        SortedMap<Queue, Held> found = new TreeMap<>();
        TreeSet<Queue> missing = new TreeSet<>(queues);
        for (int attempt = 0; attempt < ATTEMPTS_MAX && !missing.isEmpty(); attempt++) {
            if (attempt > 0) {
                pause((long) options.retryIntervalMs() << attempt);
            }
            found.putAll(held(missing));
            missing.removeAll(found.keySet());
        }
        return found;
    }

    /** Returns the first offset of each queue stored at or after a time. Leaves out brokers that do not answer. */
    SortedMap<Queue, Long> since(Collection<Queue> queues, long timestampMs) throws RemotingException {
        Map<Queue, CompletableFuture<Long>> asked = new TreeMap<>();
        for (Queue queue : queues) {
            asked.put(queue, number(queue, Codes.SEARCH_OFFSET_BY_TIMESTAMP, timestampMs));
        }
        return answered(asked);
    }

    /** Stores offsets under the consumer group, for lag tools. */
    void commit(SortedMap<Queue, Long> offsets) throws RemotingException {
        List<CompletableFuture<Response>> asked = new ArrayList<>();
        offsets.forEach(
                (queue, offset) -> {
                    Request request = request(Codes.UPDATE_CONSUMER_OFFSET, queue);
                    request.with("consumerGroup", options.consumerGroup()).with("commitOffset", offset);
                    asked.add(call(queue, request, client.requestTimeoutMs()));
                });
        for (CompletableFuture<Response> each : asked) {
            checked(RemotingException.await(each));
        }
    }

    /** Waits until a queue has a message at its offset or later, or until the timeout. */
    void await(SortedMap<Queue, Long> offsets, long timeoutMs) throws RemotingException {
        watches.keySet().retainAll(offsets.keySet());
        offsets.forEach((queue, offset) -> watches.computeIfAbsent(queue, each -> watch(queue, offset)));
        try {
            CompletableFuture.anyOf(watches.values().toArray(CompletableFuture[]::new))
                    .exceptionally(failure -> null)
                    .get(timeoutMs, TimeUnit.MILLISECONDS);
        } catch (TimeoutException idle) {
            return;
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw RemotingException.of(interrupt);
        } catch (ExecutionException impossible) {
            throw RemotingException.of(impossible);
        } finally {
            watches.values().removeIf(CompletableFuture::isDone);
        }
        if (offsets.isEmpty()) {
            pause(timeoutMs);
        }
    }

    private CompletableFuture<Response> watch(Queue queue, long offset) {
        long suspendMs = options.pullTimeoutMs();
        Request request = QueuePull.request(options, queue, offset, ONE_MESSAGE, suspendMs);
        return call(queue, request, suspendMs + client.requestTimeoutMs());
    }

    private CompletableFuture<Long> number(Queue queue, int code, Long timestampMs) {
        Request request = request(code, queue);
        if (timestampMs != null) {
            request.with("timestamp", timestampMs);
        }
        return call(queue, request, client.requestTimeoutMs())
                .thenApply(
                        response -> {
                            try {
                                return checked(response).number("offset");
                            } catch (RemotingException failure) {
                                throw new CompletionException(failure);
                            }
                        });
    }

    private Request request(int code, Queue queue) {
        Request request = new Request(code).with("topic", options.wrapped(queue.topic()));
        return request.with("queueId", queue.queueId()).with("bname", queue.broker());
    }

    private CompletableFuture<Response> call(Queue queue, Request request, long timeoutMs) {
        return client.call(options.wrapped(queue.topic()), queue.broker(), false, request, timeoutMs);
    }

    private static Response checked(Response response) throws RemotingException {
        if (response.code() != Codes.SUCCESS) {
            throw new RemotingException(response.code(), response.remark());
        }
        return response;
    }

    /** Collects answers. Leaves out failures that may pass; any other ends the query. */
    private static <T> SortedMap<Queue, T> answered(Map<Queue, CompletableFuture<T>> asked) throws RemotingException {
        SortedMap<Queue, T> found = new TreeMap<>();
        RemotingException refused = null;
        for (Map.Entry<Queue, CompletableFuture<T>> each : asked.entrySet()) {
            try {
                found.put(each.getKey(), RemotingException.await(each.getValue()));
            } catch (RemotingException failure) {
                if (Thread.currentThread().isInterrupted()) {
                    throw failure;
                }
                // A broker that has just started may not know the topic yet.
                boolean mayPass = failure.isRetriable() || failure.code() == Codes.TOPIC_NOT_EXIST;
                refused = mayPass ? refused : failure;
            }
        }
        if (refused != null) {
            throw refused;
        }
        return found;
    }

    private static void pause(long milliseconds) throws RemotingException {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw RemotingException.of(interrupt);
        }
    }
}
