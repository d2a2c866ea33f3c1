package rmqpy.spark.source;

import java.io.IOException;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import rmqpy.spark.Options;

/** Reads queues as they grow, until the time of a real-time batch is over. Spark 4.0 lacks the interface. */
final class RealTimeReader extends TopicReader implements SupportsRealTimeRead<InternalRow> {

    RealTimeReader(Task task, Options options, Columns columns) {
        super(task, options, columns);
    }

    // Newer Sparks call an overload with the current time, which calls this one.
    @Override
    public RecordStatus nextWithTimeout(Long timeoutMs) throws IOException {
        return advance(TimeUnit.MILLISECONDS.toNanos(timeoutMs))
                ? RecordStatus.newStatusWithArrivalTimeMs(storedMs())
                : RecordStatus.newStatusWithoutArrivalTime(false);
    }

    @Override
    public PartitionOffset getOffset() {
        TreeMap<Queue, Long> offsets = new TreeMap<>();
        pulls().forEach(pull -> offsets.put(pull.range.queue(), pull.delivered()));
        return new Delivered(offsets);
    }
}
