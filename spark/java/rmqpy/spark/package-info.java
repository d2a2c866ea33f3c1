/**
 * Topics as a source and a sink inside Spark's JVM, for micro-batches and Real-time Mode.
 *
 * <p>Packages point down: the classes here compose `source` and `sink`, which use the options here and `remoting`, and
 * not each other.
 */
package rmqpy.spark;
