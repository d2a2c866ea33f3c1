/**
 * The streaming sink: rows become messages, at least once.
 *
 * <p>A row is sent when it arrives, so that real-time queries are fast, and a task ends once brokers have stored all of
 * its rows.
 */
package rmqpy.spark.sink;
