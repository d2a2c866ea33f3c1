package rmqpy.spark;

import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import rmqpy.spark.sink.TopicWrite;
import rmqpy.spark.source.TopicScan;

/** Topics for streams. Batch reads and writes are those of format `rocketmq`, which moves whole columns. */
final class RocketMQTable implements SupportsRead, SupportsWrite {
    private final StructType schema;

    RocketMQTable(StructType schema) {
        this.schema = schema;
    }

    @Override
    public String name() {
        return RocketMQProvider.NAME;
    }

    // Deprecated for `columns()`, which derives them from it.
    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
        return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
        return EnumSet.of(
                TableCapability.MICRO_BATCH_READ,
                TableCapability.STREAMING_WRITE,
                TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        Options checked = new Options(options.asCaseSensitiveMap(), Options.Role.STREAM);
        return () -> new TopicScan(checked, schema);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        Map<String, String> given = info.options().asCaseSensitiveMap();
        return new TopicWrite(new Options(given, Options.Role.WRITE), info.schema(), info.queryId());
    }
}
