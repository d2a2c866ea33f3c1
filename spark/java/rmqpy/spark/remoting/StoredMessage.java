package rmqpy.spark.remoting;

import com.github.luben.zstd.ZstdInputStream;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.zip.InflaterInputStream;
import net.jpountz.lz4.LZ4FrameInputStream;

/**
 * A message as a broker stores it. Times are in milliseconds since 1970.
 *
 * @param body decompressed
 * @param storeSize the size of the record in bytes
 */
public record StoredMessage(
        long queueOffset,
        long physicalOffset,
        int flag,
        int sysFlag,
        long bornMs,
        long storeMs,
        Host bornHost,
        Host storeHost,
        int reconsumeTimes,
        int storeSize,
        int bodyCrc,
        byte[] body,
        Map<String, String> properties) {

    /** An address and a port. */
    public record Host(byte[] address, int port) {
        /** Returns `address:port`. */
        public String text() {
            try {
                return InetAddress.getByAddress(address).getHostAddress() + ":" + port;
            } catch (IOException impossible) {
                throw new IllegalStateException("an address of " + address.length + " bytes", impossible);
            }
        }
    }

    /** Maximum size of a decompressed body. */
    private static final int BODY_BYTES_MAX = 64 << 20;

    private static final int MAGIC = 0xDAA320A7;
    private static final int MAGIC_OF_LONG_TOPICS = 0xDAA320AB;
    private static final int COMPRESSED = 0x1;
    private static final int BORN_HOST_V6 = 0x10;
    private static final int STORE_HOST_V6 = 0x20;
    private static final int COMPRESSION_SHIFT = 8;
    private static final int COMPRESSION_MASK = 0x7;
    private static final int LZ4 = 1;
    private static final int ZSTD = 2;

    /** Returns the id of its producer, or the one of the broker: its address and position. */
    public String messageId() {
        String id = properties.get(Properties.UNIQ_KEY);
        if (id != null) {
            return id;
        }
        ByteBuffer place = ByteBuffer.allocate(storeHost.address().length + Integer.BYTES + Long.BYTES);
        place.put(storeHost.address()).putInt(storeHost.port()).putLong(physicalOffset);
        return HexFormat.of().withUpperCase().formatHex(place.array());
    }

    /** Decodes the records of a reply. */
    public static List<StoredMessage> decode(ByteBuffer records, String topic) throws IOException {
        List<StoredMessage> found = new ArrayList<>();
        while (records.remaining() >= Integer.BYTES) {
            int size = records.getInt(records.position());
            if (size < Integer.BYTES || size > records.remaining()) {
                throw new IOException("a reply for topic '" + topic + "' ends within a record of " + size + " bytes");
            }
            ByteBuffer record = records.slice(records.position(), size);
            try {
                found.add(one(record));
            } catch (RuntimeException malformed) {
                throw new IOException("a record of topic '" + topic + "' is damaged: " + malformed, malformed);
            }
            records.position(records.position() + size);
        }
        return found;
    }

    private static StoredMessage one(ByteBuffer record) throws IOException {
        int size = record.getInt();
        int magic = record.getInt();
        if (magic != MAGIC && magic != MAGIC_OF_LONG_TOPICS) {
            throw new IOException("unknown magic number " + Integer.toHexString(magic));
        }
        int crc = record.getInt();
        record.getInt(); // the queue, which the request named
        int flag = record.getInt();
        long queueOffset = record.getLong();
        long physicalOffset = record.getLong();
        int sysFlag = record.getInt();
        long bornMs = record.getLong();
        Host bornHost = host(record, (sysFlag & BORN_HOST_V6) != 0);
        long storeMs = record.getLong();
        Host storeHost = host(record, (sysFlag & STORE_HOST_V6) != 0);
        int reconsumeTimes = record.getInt();
        record.getLong(); // the offset of a prepared message
        byte[] body = bytes(record, record.getInt());
        int topicBytes = magic == MAGIC ? record.get() : record.getShort();
        record.position(record.position() + topicBytes);
        byte[] properties = bytes(record, record.getShort());
        boolean isCompressed = (sysFlag & COMPRESSED) != 0;
        return new StoredMessage(
                queueOffset,
                physicalOffset,
                flag,
                sysFlag,
                bornMs,
                storeMs,
                bornHost,
                storeHost,
                reconsumeTimes,
                size,
                crc,
                isCompressed ? decompressed(body, sysFlag >> COMPRESSION_SHIFT & COMPRESSION_MASK) : body,
                Properties.parse(properties, 0, properties.length));
    }

    private static Host host(ByteBuffer record, boolean isV6) {
        return new Host(bytes(record, isV6 ? 16 : 4), record.getInt());
    }

    private static byte[] bytes(ByteBuffer record, int count) {
        if (count < 0 || count > record.remaining()) {
            throw new IllegalArgumentException("a field of " + count + " bytes");
        }
        byte[] found = new byte[count];
        record.get(found);
        return found;
    }

    private static byte[] decompressed(byte[] body, int type) throws IOException {
        ByteArrayInputStream compressed = new ByteArrayInputStream(body);
        try (InputStream in =
                switch (type) {
                    case LZ4 -> new LZ4FrameInputStream(compressed);
                    case ZSTD -> new ZstdInputStream(compressed);
                    default -> new InflaterInputStream(compressed);
                }) {
            byte[] found = in.readNBytes(BODY_BYTES_MAX + 1);
            if (found.length > BODY_BYTES_MAX) {
                throw new IOException("a body is larger than " + BODY_BYTES_MAX + " bytes when decompressed");
            }
            return found;
        }
    }
}
