package rmqpy.spark.remoting;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;

/**
 * A client of one cluster: routes from its name servers, and a connection to each broker.
 *
 * <p>Shared by all tasks of a process, any thread. A failed request forgets the route of its topic, so that the next one
 * finds the new master of a broker.
 */
public final class Client {
    /** Maximum age of a route. */
    private static final long ROUTE_NANOS_MAX = TimeUnit.SECONDS.toNanos(30);
    /** Maximum number of routes. More only cost a request each. */
    private static final int ROUTES_MAX = 1024;
    /** Connecting blocks, so each attempt has a thread; there is one attempt at a time for an address. */
    private static final Executor CONNECTING =
            work -> {
                Thread thread = new Thread(work, "rmqpy-connect");
                thread.setDaemon(true);
                thread.start();
            };

    /**
     * The place of a cluster, and the identity at it.
     *
     * @param tls null for plain bytes
     * @param requestTimeoutMs of a request, and of connecting
     */
    public record Settings(List<String> nameServers, Credentials credentials, Tls tls, int requestTimeoutMs)
            implements Serializable {}

    private record KnownRoute(CompletableFuture<Route> route, long atNanos) {}

    private final Settings settings;
    private final Map<String, CompletableFuture<Connection>> connections = new ConcurrentHashMap<>();
    private final Map<String, KnownRoute> routes = new ConcurrentHashMap<>();
    private volatile int nameServer;
    private volatile boolean isClosed;

    Client(Settings settings) {
        this.settings = settings;
    }

    /** Returns the timeout of a request in milliseconds. */
    public int requestTimeoutMs() {
        return settings.requestTimeoutMs();
    }

    /** Returns the route of a topic. Fails with `TOPIC_NOT_EXIST` if it has none. */
    public CompletableFuture<Route> route(String topic) {
        long now = System.nanoTime();
        if (routes.size() > ROUTES_MAX) {
            routes.clear();
        }
        return routes.compute(topic, (name, known) -> isUsable(known, now) ? known : new KnownRoute(ask(name), now))
                .route();
    }

    /** Returns the route of a topic as name servers know it now. */
    public CompletableFuture<Route> freshRoute(String topic) {
        forget(topic);
        return route(topic);
    }

    /** Sends a request to a broker. */
    public CompletableFuture<Response> call(
            String topic, String broker, boolean needsMaster, Request request, long timeoutMs) {
        return route(topic)
                .thenCompose(
                        route -> {
                            String address = route.address(broker, needsMaster);
                            if (address == null) {
                                throw new CompletionException(
                                        new RemotingException(
                                                RemotingException.NO_ANSWER,
                                                "name servers know no "
                                                        + (needsMaster ? "master" : "address")
                                                        + " of broker '" + broker + "'"));
                            }
                            return at(address, request, timeoutMs);
                        })
                .whenComplete(
                        (response, failure) -> {
                            if (failure != null) {
                                forget(topic);
                            }
                        });
    }

    /** Makes the next request for a topic look up its route. */
    public void forget(String topic) {
        routes.remove(topic);
    }

    void close() {
        isClosed = true;
        connections.values().forEach(future -> future.thenAccept(each -> each.close("the client was closed", null)));
    }

    private static boolean isUsable(KnownRoute known, long now) {
        return known != null
                && now - known.atNanos() < ROUTE_NANOS_MAX
                && !known.route().isCompletedExceptionally();
    }

    /** Asks each name server in turn, beginning with the last one that answered. */
    private CompletableFuture<Route> ask(String topic) {
        CompletableFuture<Route> asked = CompletableFuture.failedFuture(
                new RemotingException(RemotingException.NO_ANSWER, "no name server was asked"));
        List<String> servers = settings.nameServers();
        List<String> failures = new ArrayList<>();
        for (int turn = 0; turn < servers.size(); turn++) {
            int index = (nameServer + turn) % servers.size();
            asked = asked.exceptionallyCompose(failure -> {
                RemotingException reason = RemotingException.of(failure);
                return reason.code() == RemotingException.NO_ANSWER
                        ? askOne(index, topic, failures)
                        : CompletableFuture.failedFuture(reason);
            });
        }
        return asked;
    }

    private CompletableFuture<Route> askOne(int index, String topic, List<String> failures) {
        String address = settings.nameServers().get(index);
        Request request = new Request(Codes.GET_ROUTEINFO_BY_TOPIC).with("topic", topic);
        return at(address, request.with("acceptStandardJsonOnly", true), settings.requestTimeoutMs())
                .handle(
                        (response, failure) -> {
                            if (failure != null) {
                                failures.add(address + ": " + RemotingException.of(failure).getMessage());
                                throw new CompletionException(
                                        new RemotingException(
                                                RemotingException.NO_ANSWER, "no name server answers: " + failures));
                            }
                            nameServer = index;
                            return parsed(topic, response);
                        });
    }

    private static Route parsed(String topic, Response response) {
        try {
            if (response.code() == Codes.TOPIC_NOT_EXIST) {
                throw new RemotingException(response.code(), "topic '" + topic + "' does not exist");
            }
            if (response.code() != Codes.SUCCESS) {
                throw new RemotingException(response.code(), "no route of topic '" + topic + "': " + response.remark());
            }
            return Route.parse(topic, response.body());
        } catch (IOException failure) {
            throw new CompletionException(failure);
        }
    }

    private CompletableFuture<Response> at(String address, Request request, long timeoutMs) {
        return connected(address).thenCompose(connection -> connection.send(request, timeoutMs));
    }

    private CompletableFuture<Connection> connected(String address) {
        return connections.compute(address, (key, known) -> isUsable(known) ? known : connect(key));
    }

    private static boolean isUsable(CompletableFuture<Connection> known) {
        return known != null
                && !known.isCompletedExceptionally()
                && (!known.isDone() || known.join().isOpen());
    }

    private CompletableFuture<Connection> connect(String address) {
        return CompletableFuture.supplyAsync(
                () -> {
                    try {
                        Connection connection = new Connection(
                                address, settings.requestTimeoutMs(), settings.credentials(), settings.tls());
                        if (isClosed) {
                            connection.close("the client was closed", null);
                        }
                        return connection;
                    } catch (IOException failure) {
                        throw new CompletionException(
                                new RemotingException(
                                        RemotingException.NO_ANSWER, "cannot connect to " + address + ": " + failure, failure));
                    }
                },
                CONNECTING);
    }
}
