package rmqpy.spark.source;

import java.io.Serializable;

/** Messages of a queue from `start` up to, not including, `end`. */
record Range(Queue queue, long start, long end) implements Serializable {
    /** The end of a range that grows with its queue. */
    static final long OPEN = Long.MAX_VALUE;
}
