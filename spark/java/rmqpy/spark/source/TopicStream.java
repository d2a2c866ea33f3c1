package rmqpy.spark.source;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import rmqpy.spark.Options;
import rmqpy.spark.remoting.Clients;
import rmqpy.spark.remoting.RemotingException;

/**
 * A stream in micro-batches. The thread of its query calls everything here.
 *
 * <p>Invariants: new messages are always looked up, never answered from an older copy, or `processAllAvailable` would
 * miss some; and a position without news is the same object, or Spark would run empty batches for ever.
 */
class TopicStream implements MicroBatchStream, SupportsTriggerAvailableNow {
    private static final Logger LOG = LoggerFactory.getLogger(TopicStream.class);

    final Options options;
    final StructType schema;
    final Cluster cluster;
    final int tasksMax;
    private final StartFile startFile;
    private Position initial;
    /** The end of this run, with `availableNow`. */
    private SortedMap<Queue, Held> target;
    private SortedMap<Queue, Held> latest = new TreeMap<>();
    private Set<Queue> silent = Set.of();
    private long idleSinceNanos;
    private boolean isIdle;
    private boolean isStopped;

    TopicStream(Options options, StructType schema, StartFile startFile, int cores) {
        this.options = options;
        this.schema = schema;
        this.startFile = startFile;
        tasksMax = options.maxPartitions(cores);
        cluster = new Cluster(Clients.acquire(options.client()), options);
    }

    // ---- called by Spark ---------------------------------------------------------------------------------

    @Override
    public Offset initialOffset() {
        return unchecked(
                () -> {
                    if (initial == null) {
                        String text = startFile.read();
                        initial = text != null ? Position.parse(text) : firstPosition();
                        if (text == null) {
                            startFile.write(initial.json());
                        }
                    }
                    return initial;
                });
    }

    @Override
    public Offset deserializeOffset(String json) {
        return Position.parse(json);
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        return options.hasMaxOffsetsPerTrigger()
                ? ReadLimit.maxRows(options.maxOffsetsPerTrigger())
                : ReadLimit.allAvailable();
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        target = unchecked(() -> cluster.heldPatiently(cluster.queues(false).all()));
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
        return unchecked(() -> next((Position) start, !(limit instanceof ReadAllAvailable)));
    }

    @Override
    public Offset latestOffset() {
        throw new UnsupportedOperationException("Spark passes the start and the limit of a micro-batch");
    }

    @Override
    public Offset reportLatestOffset() {
        SortedMap<Queue, Long> ends = new TreeMap<>();
        latest.forEach((queue, held) -> ends.put(queue, held.end()));
        return ends.isEmpty() ? null : Position.end(ends, null, null);
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        return unchecked(() -> plan((Position) start, (Position) end));
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new ReaderFactory(options, schema, false);
    }

    @Override
    public void commit(Offset end) {
        if (options.commitOffsets()) {
            try {
                cluster.commit(((Position) end).queues());
            } catch (RemotingException failure) {
                LOG.warn("cannot store offsets under group {}: {}", options.consumerGroup(), failure.getMessage());
            }
        }
    }

    @Override
    public void stop() {
        if (!isStopped) {
            isStopped = true;
            Clients.release(options.client());
        }
    }

    // ---- steps -------------------------------------------------------------------------------------------

    /** Returns the position at which the options start. */
    private Position firstPosition() throws IOException {
        long nowMs = System.currentTimeMillis();
        Cluster.Queues queues = cluster.queues(true);
        SortedMap<Queue, Held> held = cluster.heldPatiently(queues.all());
        Set<Queue> missing = new TreeSet<>(queues.all());
        missing.removeAll(held.keySet());
        warnSilent(missing);
        Set<String> brokers = new TreeSet<>();
        held.keySet().forEach(queue -> brokers.add(queue.broker()));
        missing.forEach(queue -> brokers.remove(queue.broker()));
        String bound = options.startingOffsets();
        Long timestampMs = options.startingTimestamp();
        SortedMap<Queue, Long> first = new TreeMap<>();
        Long sinceMs = null;
        if (timestampMs != null) {
            first.putAll(cluster.since(held.keySet(), timestampMs));
            sinceMs = timestampMs;
            brokers.clear();
        } else if (bound.equalsIgnoreCase("latest")) {
            held.forEach((queue, each) -> first.put(queue, each.end()));
            sinceMs = nowMs;
        } else if (bound.equalsIgnoreCase("earliest")) {
            held.forEach((queue, each) -> first.put(queue, each.begin()));
        } else {
            first.putAll(named(Position.parseOffsets(bound), held));
        }
        return Position.first(first, new Begin(List.copyOf(brokers), sinceMs));
    }

    /** Returns a start for every queue: those that the option leaves out begin at their earliest message. */
    private static SortedMap<Queue, Long> named(SortedMap<Queue, Long> given, SortedMap<Queue, Held> held) {
        SortedMap<Queue, Long> first = new TreeMap<>();
        for (Queue queue : given.keySet()) {
            if (!held.containsKey(queue)) {
                throw new IllegalArgumentException(
                        "option 'startingOffsets': queue " + queue + " does not exist, or its broker does not answer");
            }
        }
        held.forEach(
                (queue, each) -> {
                    long offset = given.getOrDefault(queue, -2L);
                    first.put(queue, offset == -2 ? each.begin() : offset == -1 ? each.end() : offset);
                });
        return first;
    }

    /** Returns the end of the next micro-batch, or `at` itself if there is nothing to read. */
    private Position next(Position at, boolean isLimited) throws IOException {
        if (isIdle && target == null && !isRealTime()) {
            rest(at);
        }
        latest = look(at);
        SortedMap<Queue, Long> base = base(at, latest);
        SortedMap<Queue, Held> upTo = target == null ? latest : withinTarget(at, base);
        SortedMap<Queue, Long> backlog = Plan.backlog(base, upTo);
        SortedMap<Queue, Long> taken = isLimited ? Plan.share(backlog, options.maxOffsetsPerTrigger()) : backlog;
        SortedMap<Queue, Long> end = new TreeMap<>();
        base.forEach((queue, offset) -> end.put(queue, offset + taken.get(queue)));
        boolean isLate = base.keySet().stream().anyMatch(queue -> isLate(at, queue));
        if (end.equals(at.queues()) && !at.isFirst()) {
            isIdle = true;
            idleSinceNanos = System.nanoTime();
            return at;
        }
        isIdle = false;
        return Position.end(end, at.isFirst() || isLate ? joined(at, base) : null, at.begin());
    }

    /** Returns whether Spark plans real-time batches, whose end it does not ask for in advance. */
    boolean isRealTime() {
        return false;
    }

    /** Waits for a message, at most until the poll interval ends: an idle Spark asks some ninety times a second. */
    private void rest(Position at) throws IOException {
        long passedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - idleSinceNanos);
        long leftMs = options.offsetPollIntervalMs() - passedMs;
        if (leftMs > 0) {
            cluster.await(at.queues(), leftMs);
        }
    }

    /** Returns what brokers hold of every queue. One whose broker does not answer keeps its position. */
    final SortedMap<Queue, Held> look(Position at) throws IOException {
        Cluster.Queues queues = cluster.queues(false);
        Set<Queue> all = new TreeSet<>(queues.all());
        List<String> losses = new ArrayList<>();
        at.queues().forEach(
                (queue, offset) -> {
                    if (!options.topics().contains(queue.topic())) {
                        losses.add("queue " + queue + " is no longer selected by the options; the query was at " + offset);
                    } else if (queues.isGone(queue)) {
                        losses.add("queue " + queue + " no longer exists; the query was at " + offset);
                    } else {
                        all.add(queue);
                    }
                });
        DataLoss.report(losses, options, LOG);
        SortedMap<Queue, Held> held = cluster.held(all);
        Set<Queue> missing = new TreeSet<>(all);
        missing.removeAll(held.keySet());
        warnSilent(missing);
        for (Queue queue : missing) {
            Long offset = at.queues().get(queue);
            if (offset != null) {
                held.put(queue, new Held(offset, offset));
            }
        }
        return held;
    }

    /** Returns the next offset to read of each queue, of new ones as well. */
    final SortedMap<Queue, Long> base(Position at, SortedMap<Queue, Held> held) throws IOException {
        List<String> losses = new ArrayList<>();
        SortedMap<Queue, Long> base = new TreeMap<>();
        List<Queue> late = new ArrayList<>();
        held.forEach(
                (queue, each) -> {
                    Long offset = at.queues().get(queue);
                    if (offset == null && isLate(at, queue)) {
                        late.add(queue);
                    } else if (offset != null && each.end() < offset) {
                        losses.add("queue " + queue + " ends at " + each.end() + ", but the query was at " + offset
                                + ": it was recreated or truncated");
                        base.put(queue, each.begin());
                    } else {
                        if (offset != null && offset < each.begin()) {
                            losses.add("queue " + queue + ": requested " + offset + ", but the broker holds "
                                    + each.begin() + " and later");
                        }
                        base.put(queue, offset == null ? each.begin() : Math.max(offset, each.begin()));
                    }
                });
        DataLoss.report(losses, options, LOG);
        if (!late.isEmpty()) {
            // Without an answer a queue joins later.
            base.putAll(cluster.since(late, at.begin().sinceMs()));
        }
        return base;
    }

    /** Returns whether a queue existed when the query began, at a broker that was missing then. */
    private static boolean isLate(Position at, Queue queue) {
        Begin begin = at.begin();
        return !at.queues().containsKey(queue)
                && begin != null
                && begin.sinceMs() != null
                && !begin.brokers().contains(queue.broker());
    }

    private static Map<Queue, Long> joined(Position at, SortedMap<Queue, Long> base) {
        Map<Queue, Long> start = new TreeMap<>(at.queues());
        base.forEach(start::putIfAbsent);
        return start;
    }

    /** Limits what is read to the end of an `availableNow` run. The next run reads queues that appear later. */
    private SortedMap<Queue, Held> withinTarget(Position at, SortedMap<Queue, Long> base) {
        SortedMap<Queue, Held> limited = new TreeMap<>();
        base.keySet().removeIf(queue -> !target.containsKey(queue) && !at.queues().containsKey(queue));
        base.forEach(
                (queue, offset) -> {
                    long end = target.containsKey(queue) ? target.get(queue).end() : offset;
                    limited.put(queue, new Held(0, Math.max(offset, Math.min(end, latest.get(queue).end()))));
                });
        return limited;
    }

    private InputPartition[] plan(Position start, Position end) throws IOException {
        // In a repeated first batch the start may have been computed again.
        SortedMap<Queue, Long> begun = end.begunAt() == null ? start.queues() : end.begunAt();
        SortedMap<Queue, Held> held = cluster.held(end.queues().keySet());
        List<Range> ranges = new ArrayList<>();
        List<String> losses = new ArrayList<>();
        end.queues().forEach(
                (queue, last) -> {
                    long first = begun.getOrDefault(queue, 0L);
                    // A queue that ends before its start was recreated, which was reported when its end was found.
                    first = first > last ? 0 : first;
                    Held each = held.getOrDefault(queue, new Held(first, last));
                    long from = Math.max(first, each.begin());
                    long to = Math.min(last, each.end());
                    boolean isNew = !begun.containsKey(queue);
                    if (first < last && (to < last || (from > first && !isNew))) {
                        losses.add("queue " + queue + ": requested " + first + " to " + last + ", but the broker holds "
                                + each.begin() + " to " + each.end());
                    }
                    if (from < to) {
                        ranges.add(new Range(queue, from, to));
                    }
                });
        DataLoss.report(losses, options, LOG);
        return Plan.tasks(ranges, tasksMax);
    }

    /** Warns once of queues that cannot be read, and again after they could. */
    private void warnSilent(Set<Queue> missing) {
        Set<Queue> news = new TreeSet<>(missing);
        news.removeAll(silent);
        if (!news.isEmpty()) {
            LOG.warn("brokers do not answer for {}; the query continues without them", news);
        }
        silent = missing;
    }

    /** A step that asks brokers, or reads a checkpoint. */
    @FunctionalInterface
    interface Step<T> {
        T run() throws IOException;
    }

    static <T> T unchecked(Step<T> step) {
        try {
            return step.run();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure.getMessage(), failure);
        }
    }
}
