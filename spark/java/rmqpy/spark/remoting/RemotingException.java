package rmqpy.spark.remoting;

import java.io.IOException;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;

/** A request that failed: a server refused it, or no answer came. */
public final class RemotingException extends IOException {
    private static final long serialVersionUID = 1L;

    /** The code of a request without an answer. */
    public static final int NO_ANSWER = -1;

    private static final Set<Integer> RETRIABLE =
            Set.of(
                    NO_ANSWER,
                    Codes.SYSTEM_ERROR,
                    Codes.SYSTEM_BUSY,
                    Codes.SERVICE_NOT_AVAILABLE,
                    Codes.NOT_IN_CURRENT_UNIT,
                    Codes.GO_AWAY);

    private final int code;

    public RemotingException(int code, String message, Throwable cause) {
        super(message, cause);
        this.code = code;
    }

    public RemotingException(int code, String message) {
        this(code, message, null);
    }

    /** Returns the code of the response, or {@link #NO_ANSWER}. */
    public int code() {
        return code;
    }

    /** Returns whether the same request may succeed later, or at another server. */
    public boolean isRetriable() {
        return RETRIABLE.contains(code);
    }

    /** Returns the failure of a future as this exception. */
    public static RemotingException of(Throwable failure) {
        Throwable cause = failure;
        while ((cause instanceof CompletionException || cause instanceof ExecutionException)
                && cause.getCause() != null) {
            cause = cause.getCause();
        }
        if (cause instanceof RemotingException known) {
            return known;
        }
        if (cause instanceof TimeoutException) {
            return new RemotingException(NO_ANSWER, "no answer in time", cause);
        }
        return new RemotingException(NO_ANSWER, String.valueOf(cause), cause);
    }

    /** Waits for a future that has a timeout. The thread must not be one that completes futures. */
    public static <T> T await(CompletableFuture<T> future) throws RemotingException {
        try {
            return future.get();
        } catch (ExecutionException failure) {
            throw of(failure);
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw new RemotingException(NO_ANSWER, "interrupted while waiting for an answer", interrupt);
        }
    }
}
