/**
 * The streaming source: positions, plans of micro-batches on the driver, and reads on executors.
 *
 * <p>A position has the form of the source in Python, so a checkpoint may move between both.
 */
package rmqpy.spark.source;
