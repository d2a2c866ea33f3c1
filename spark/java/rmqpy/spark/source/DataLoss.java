package rmqpy.spark.source;

import java.io.IOException;
import java.util.List;
import org.slf4j.Logger;
import rmqpy.spark.Options;

/** Brokers no longer hold messages that a query has not read. */
public final class DataLoss extends IOException {
    private static final long serialVersionUID = 1L;

    private DataLoss(String message) {
        super(message);
    }

    /** Fails for losses, or logs them, by the options. */
    static void report(List<String> losses, Options options, Logger log) throws DataLoss {
        if (!losses.isEmpty() && options.failOnDataLoss()) {
            throw new DataLoss(String.join("; ", losses) + "; set failOnDataLoss=false to read the rest");
        }
        losses.forEach(log::warn);
    }
}
