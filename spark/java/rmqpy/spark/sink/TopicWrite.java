package rmqpy.spark.sink;

import java.io.UncheckedIOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.types.StructType;
import rmqpy.spark.Options;
import rmqpy.spark.remoting.Client;
import rmqpy.spark.remoting.Clients;
import rmqpy.spark.remoting.Codes;
import rmqpy.spark.remoting.RemotingException;

/**
 * Writes a stream. Messages cannot be replaced, so each output mode sends rows: `append` new ones, `update` changed
 * ones, and `complete` all of them.
 */
public final class TopicWrite implements SupportsTruncate, SupportsStreamingUpdateAsAppend {
    private final Options options;
    private final RowMessages messages;

    public TopicWrite(Options options, StructType schema, String queryId) {
        this.options = options;
        messages = new RowMessages(schema, options, queryId);
    }

    @Override
    public WriteBuilder truncate() {
        return this;
    }

    @Override
    public Write build() {
        return new Write() {
            @Override
            public StreamingWrite toStreaming() {
                checkTopic();
                return new Stream(options, messages);
            }
        };
    }

    /** Fails for a missing topic before the first task starts. If no name server answers, tasks try again. */
    private void checkTopic() {
        if (options.topic() == null || options.createTopic()) {
            return;
        }
        Client client = Clients.acquire(options.client());
        try {
            RemotingException.await(client.route(options.wrapped(options.topic())));
        } catch (RemotingException failure) {
            if (failure.code() == Codes.TOPIC_NOT_EXIST) {
                throw new IllegalArgumentException(
                        "topic '" + options.topic() + "' does not exist; set createTopic=true to create it with its first "
                                + "message, or run: rmqpy topic create " + options.topic());
            }
            if (!failure.isRetriable()) {
                throw new UncheckedIOException(failure);
            }
        } finally {
            Clients.release(options.client());
        }
    }

    /** Passes writers to tasks. Nothing is left to commit: brokers have stored the rows of a task when it ends. */
    private record Stream(Options options, RowMessages messages) implements StreamingWrite {
        @Override
        public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
            return new Writers(options, messages);
        }

        @Override
        public boolean useCommitCoordinator() {
            return false;
        }

        @Override
        public void commit(long batch, WriterCommitMessage[] results) {}

        @Override
        public void abort(long batch, WriterCommitMessage[] results) {}
    }

    private record Writers(Options options, RowMessages messages) implements StreamingDataWriterFactory {
        @Override
        public DataWriter<InternalRow> createWriter(int partition, long task, long batch) {
            return new TopicDataWriter(options, messages);
        }
    }
}
