package rmqpy.spark.source;

import java.util.ArrayList;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.types.StructType;
import rmqpy.spark.Options;

/**
 * A stream in micro-batches or Real-time Mode, whose batches read queues as they grow. Spark 4.0 lacks the interface.
 *
 * <p>Tasks report where they ended, and Spark logs that as the end of the batch.
 */
final class RealTimeStream extends TopicStream implements SupportsRealTimeMode {
    private boolean isRealTime;
    private Position start;

    RealTimeStream(Options options, StructType schema, StartFile startFile, int cores) {
        super(options, schema, startFile, cores);
    }

    @Override
    boolean isRealTime() {
        return isRealTime;
    }

    @Override
    public void prepareForRealTimeMode() {
        if (options.hasMaxOffsetsPerTrigger()) {
            throw new IllegalArgumentException(
                    "option 'maxOffsetsPerTrigger' limits micro-batches; a real-time batch ends by time: leave it out");
        }
        isRealTime = true;
    }

    @Override
    public InputPartition[] planInputPartitions(Offset begin) {
        return unchecked(
                () -> {
                    start = (Position) begin;
                    List<Range> ranges = new ArrayList<>();
                    base(start, look(start)).forEach((queue, offset) -> ranges.add(new Range(queue, offset, Range.OPEN)));
                    // Without a queue there is a task that waits, or batches would follow each other at once.
                    return ranges.isEmpty() ? new Task[] {new Task(ranges)} : Plan.tasks(ranges, tasksMax);
                });
    }

    @Override
    public Offset mergeOffsets(PartitionOffset[] ends) {
        SortedMap<Queue, Long> merged = new TreeMap<>(start.queues());
        for (PartitionOffset end : ends) {
            merged.putAll(((Delivered) end).offsets());
        }
        return Position.end(merged, start.isFirst() ? start.queues() : null, start.begin());
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new ReaderFactory(options, schema, isRealTime);
    }
}
