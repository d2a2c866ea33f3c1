package rmqpy.spark.sink;

import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.concurrent.atomic.AtomicLong;

/** Ids of messages that are new each time: a random number of the process, and a counter. */
final class UniqueIds {
    private static final HexFormat HEX = HexFormat.of().withUpperCase();
    private static final String PROCESS = HEX.toHexDigits(new SecureRandom().nextLong());
    private static final AtomicLong NUMBERS = new AtomicLong();

    private UniqueIds() {}

    static String next() {
        return PROCESS + HEX.toHexDigits(NUMBERS.incrementAndGet());
    }
}
