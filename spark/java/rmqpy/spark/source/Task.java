package rmqpy.spark.source;

import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/** The ranges of queues that a task reads. */
record Task(List<Range> ranges) implements InputPartition {}
