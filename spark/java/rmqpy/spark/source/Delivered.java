package rmqpy.spark.source;

import java.util.TreeMap;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;

/** The next offset of each queue of a real-time task: behind the rows that it passed on. */
record Delivered(TreeMap<Queue, Long> offsets) implements PartitionOffset {}
