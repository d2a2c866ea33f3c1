package rmqpy.spark.sink;

/**
 * A message to send.
 *
 * @param target its topic, and its queue if the row determines one
 * @param properties encoded
 * @param isAlone whether it cannot share a request, because brokers deliver it later
 */
record OutboundMessage(Target target, int flag, byte[] body, byte[] properties, boolean isAlone) {
    /** The fixed part of a message in a batch: five 32-bit numbers and the length of its properties. */
    static final int FIXED_BYTES = 5 * Integer.BYTES + Short.BYTES;

    /** The place of a message: any queue of a topic, the queue of a key's hash, or a named queue. */
    record Target(String topic, String broker, int queueId, int hash, Kind kind) {
        static Target any(String topic) {
            return new Target(topic, null, -1, 0, Kind.ANY);
        }

        static Target ofKey(String topic, String key) {
            return new Target(topic, null, -1, key.hashCode(), Kind.HASH);
        }

        static Target named(String topic, String broker, int queueId) {
            return new Target(topic, broker, queueId, 0, Kind.NAMED);
        }
    }

    enum Kind {
        ANY,
        HASH,
        NAMED
    }

    /** The size in a batch. */
    int bytes() {
        return FIXED_BYTES + body.length + properties.length;
    }
}
