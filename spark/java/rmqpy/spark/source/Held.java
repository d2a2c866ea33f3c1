package rmqpy.spark.source;

/** The offsets of a queue that its broker holds, from `begin` up to, not including, `end`. */
record Held(long begin, long end) {}
