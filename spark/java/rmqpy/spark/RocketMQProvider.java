package rmqpy.spark;

import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import rmqpy.spark.source.Columns;

/** The format `rocketmq-jvm`. Spark finds it by its name in META-INF/services. */
public final class RocketMQProvider implements TableProvider, DataSourceRegister {
    /** The name for `format`. `rocketmq` is the source in Python, and Spark wants a name to mean one source. */
    public static final String NAME = "rocketmq-jvm";

    @Override
    public String shortName() {
        return NAME;
    }

    /** Returns the default columns of a read. Spark also calls this for a sink, which accepts any columns. */
    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        String included = options.getOrDefault("includeProperties", "true");
        return Columns.usual(!included.strip().toLowerCase(Locale.ROOT).equals("false"));
    }

    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new RocketMQTable(schema);
    }
}
