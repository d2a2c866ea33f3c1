package rmqpy.spark.source;

import java.util.List;

/**
 * The state in which a stream began. It distinguishes new queues from those whose broker was missing then.
 *
 * @param brokers those that listed their queues; their later queues are new, and read from their beginning
 * @param sinceMs the store time from which queues of other brokers are read, or null for their earliest message
 */
record Begin(List<String> brokers, Long sinceMs) {}
