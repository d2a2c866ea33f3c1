package rmqpy.spark.remoting;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A connection to one server. Requests wait for responses independently of each other.
 *
 * <p>Threads: one reads and completes futures, one writes. Callers never touch the socket, so a server that stops
 * reading blocks none of them.
 */
final class Connection {
    /** Maximum number of requests without an answer. Tasks have one for each queue that they read or write. */
    private static final int PENDING_MAX = 4096;
    private static final int READ_BUFFER_BYTES = 256 << 10;

    private final String address;
    private final Credentials credentials;
    private final Socket socket;
    private final Map<Integer, CompletableFuture<Response>> pending = new ConcurrentHashMap<>();
    private final BlockingQueue<byte[]> outgoing = new ArrayBlockingQueue<>(PENDING_MAX);
    private final AtomicInteger opaques = new AtomicInteger();
    private volatile long readAtNanos = System.nanoTime();
    private final AtomicBoolean closed = new AtomicBoolean();

    /** Connects. Blocks up to the timeout, and as long again for a handshake. `tls` is null for plain bytes. */
    Connection(String address, int timeoutMs, Credentials credentials, Tls tls) throws IOException {
        this.address = address;
        this.credentials = credentials;
        int colon = address.lastIndexOf(':');
        if (colon < 0) {
            throw new IOException("'" + address + "' is not host:port");
        }
        int port;
        try {
            port = Integer.parseInt(address.substring(colon + 1).trim());
        } catch (NumberFormatException malformed) {
            throw new IOException("'" + address + "' is not host:port", malformed);
        }
        String host = address.substring(0, colon).trim();
        Socket plain = new Socket();
        try {
            plain.setTcpNoDelay(true);
            plain.connect(new InetSocketAddress(host, port), timeoutMs);
            socket = tls == null ? plain : tls.over(plain, host, timeoutMs);
            start("rmqpy-read-", this::read);
            start("rmqpy-write-", this::write);
        } catch (IOException | RuntimeException failure) {
            plain.close();
            throw failure;
        }
    }

    boolean isOpen() {
        return !closed.get();
    }

    /** Sends a request. The future fails after the timeout, or when the connection ends. */
    CompletableFuture<Response> send(Request request, long timeoutMs) {
        CompletableFuture<Response> answer = new CompletableFuture<>();
        int opaque = opaques.incrementAndGet();
        long sentAtNanos = System.nanoTime();
        try {
            byte[] frame = Frame.encode(request, opaque, credentials);
            pending.put(opaque, answer);
            // Checked after the entry, so that an end of the connection cannot miss it.
            if (closed.get()) {
                answer.completeExceptionally(lost("it was closed", null));
            } else if (!outgoing.offer(frame)) {
                answer.completeExceptionally(lost("too many requests wait for answers", null));
            }
        } catch (RemotingException failure) {
            answer.completeExceptionally(failure);
        }
        return answer.orTimeout(timeoutMs, TimeUnit.MILLISECONDS)
                .whenComplete(
                        (response, failure) -> {
                            // A silent server: the next request needs another connection.
                            if (pending.remove(opaque) != null && failure != null && readAtNanos < sentAtNanos) {
                                close("no answer within " + timeoutMs + " ms", failure);
                            }
                        });
    }

    /** Ends the connection, and fails the requests that wait. */
    void close(String reason, Throwable cause) {
        if (!closed.compareAndSet(false, true)) {
            return;
        }
        try {
            socket.close();
        } catch (IOException ignored) {
            // It is closed as far as it can be.
        }
        // An empty frame ends the thread that writes. If there is no room, that thread finds the socket closed.
        outgoing.offer(new byte[0]);
        RemotingException failure = lost(reason, cause);
        pending.values().forEach(answer -> answer.completeExceptionally(failure));
    }

    private RemotingException lost(String reason, Throwable cause) {
        return new RemotingException(RemotingException.NO_ANSWER, "connection to " + address + ": " + reason, cause);
    }

    private void start(String prefix, Runnable work) {
        Thread thread = new Thread(work, prefix + address);
        thread.setDaemon(true);
        thread.start();
    }

    private void read() {
        try (DataInputStream in =
                new DataInputStream(new BufferedInputStream(socket.getInputStream(), READ_BUFFER_BYTES))) {
            while (!closed.get()) {
                int length = in.readInt();
                if (length < Integer.BYTES || length > Frame.BYTES_MAX) {
                    throw new IOException("a frame of " + length + " bytes");
                }
                byte[] bytes = new byte[length];
                in.readFully(bytes);
                readAtNanos = System.nanoTime();
                Frame frame = Frame.decode(bytes);
                // Servers also send requests, such as notices to consumers of a group. None needs an answer here.
                if (frame.isResponse()) {
                    CompletableFuture<Response> answer = pending.remove(frame.opaque());
                    if (answer != null) {
                        answer.complete(frame.response());
                    }
                }
            }
        } catch (IOException | RuntimeException failure) {
            close(String.valueOf(failure), failure);
        }
    }

    private void write() {
        try {
            OutputStream out = socket.getOutputStream();
            while (!closed.get()) {
                byte[] frame = outgoing.take();
                out.write(frame);
            }
        } catch (IOException | InterruptedException failure) {
            close(String.valueOf(failure), failure);
        }
    }
}
