package rmqpy.spark.sink;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import rmqpy.spark.Options;

/** Sends the rows of one task. */
final class TopicDataWriter implements DataWriter<InternalRow> {
    private final RowMessages messages;
    private final Sender sender;
    private long rows;

    TopicDataWriter(Options options, RowMessages messages) {
        this.messages = messages;
        sender = new Sender(options);
    }

    @Override
    public void write(InternalRow row) throws IOException {
        sender.add(messages.message(row));
        rows++;
    }

    @Override
    public WriterCommitMessage commit() throws IOException {
        sender.flush();
        return new WriteResult(rows);
    }

    /** Adds the failure of a send to the one that Spark reports, which may be only an interrupt. */
    @Override
    public void abort() throws IOException {
        sender.throwFailure();
    }

    @Override
    public void close() {
        sender.close();
    }
}
