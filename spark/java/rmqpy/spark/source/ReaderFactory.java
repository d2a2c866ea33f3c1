package rmqpy.spark.source;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import rmqpy.spark.Options;

/** Makes the readers of tasks on executors. */
record ReaderFactory(Options options, StructType schema, boolean isRealTime) implements PartitionReaderFactory {

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        Columns columns = new Columns(schema, options.bodyDecodeError());
        return isRealTime
                ? new RealTimeReader((Task) partition, options, columns)
                : new TopicReader((Task) partition, options, columns);
    }
}
