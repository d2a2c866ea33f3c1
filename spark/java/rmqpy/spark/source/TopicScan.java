package rmqpy.spark.source;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import rmqpy.spark.Options;

/** A read of topics with a schema. */
public final class TopicScan implements Scan {
    private final Options options;
    private final StructType schema;

    public TopicScan(Options options, StructType schema) {
        this.options = options;
        this.schema = schema;
        // Fails here for a column that does not exist.
        new Columns(schema, options.bodyDecodeError());
    }

    @Override
    public StructType readSchema() {
        return schema;
    }

    @Override
    public String description() {
        return "topics " + String.join(", ", options.topics());
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
        SparkContext context = SparkContext.getOrCreate();
        StartFile start = new StartFile(checkpointLocation, context.hadoopConfiguration());
        int cores = context.defaultParallelism();
        return hasRealTimeMode()
                ? new RealTimeStream(options, schema, start, cores)
                : new TopicStream(options, schema, start, cores);
    }

    /** Returns whether Spark is 4.1 or newer. */
    private static boolean hasRealTimeMode() {
        try {
            Class.forName("org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode");
            return true;
        } catch (ClassNotFoundException older) {
            return false;
        }
    }
}
