package rmqpy.spark.source;

import java.io.Serializable;
import java.util.Comparator;

/** The name of a queue, without the namespace of its topic. Executors look up the addresses of brokers. */
public record Queue(String topic, String broker, int queueId) implements Serializable, Comparable<Queue> {
    /** Ids are sorted as text, as positions in checkpoints are. */
    private static final Comparator<Queue> ORDER =
            Comparator.comparing(Queue::topic)
                    .thenComparing(Queue::broker)
                    .thenComparing(each -> Integer.toString(each.queueId()));

    @Override
    public int compareTo(Queue other) {
        return ORDER.compare(this, other);
    }

    @Override
    public String toString() {
        return topic + "/" + broker + "/" + queueId;
    }
}
