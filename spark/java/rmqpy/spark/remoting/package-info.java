/**
 * A client of RocketMQ's remoting protocol, as far as a source and a sink need it: routes, offsets, pulls and sends.
 *
 * <p>Knows nothing of Spark. No call blocks: each returns a future, and each future has a timeout. A thread reads and a
 * thread writes for every connection; completions run on the reading one, so they must not wait.
 */
package rmqpy.spark.remoting;
