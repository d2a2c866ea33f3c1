package rmqpy.spark.sink;

import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** The report of one task. Brokers have stored everything it counts. */
record WriteResult(long rows) implements WriterCommitMessage {}
