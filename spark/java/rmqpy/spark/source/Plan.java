package rmqpy.spark.source;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.SortedMap;
import java.util.TreeMap;

/** Arithmetic of plans: shares of a micro-batch, and the division of ranges into tasks. Asks no broker. */
final class Plan {
    private Plan() {}

    /** Divides a budget in proportion to the backlog of each queue, at least one row for each that has a backlog. */
    static SortedMap<Queue, Long> share(SortedMap<Queue, Long> backlog, long rowsMax) {
        long waiting = backlog.values().stream().mapToLong(Long::longValue).sum();
        if (waiting <= rowsMax) {
            return backlog;
        }
        SortedMap<Queue, Long> shares = new TreeMap<>();
        backlog.forEach(
                (queue, rows) -> {
                    long share = (long) ((double) rows * rowsMax / waiting);
                    shares.put(queue, Math.min(rows, Math.max(Math.min(1, rows), share)));
                });
        return shares;
    }

    /** Divides ranges into at most a number of tasks: the longest first, into the task with the fewest rows. */
    static Task[] tasks(List<Range> ranges, int tasksMax) {
        record Bin(List<Range> ranges, long[] rows) {}
        PriorityQueue<Bin> bins = new PriorityQueue<>(Comparator.comparingLong(bin -> bin.rows()[0]));
        List<Bin> all = new ArrayList<>();
        for (int index = 0; index < Math.min(tasksMax, ranges.size()); index++) {
            Bin bin = new Bin(new ArrayList<>(), new long[1]);
            bins.add(bin);
            all.add(bin);
        }
        List<Range> longestFirst = new ArrayList<>(ranges);
        longestFirst.sort(Comparator.comparingLong(range -> -rows(range)));
        for (Range range : longestFirst) {
            Bin bin = bins.remove();
            bin.ranges().add(range);
            bin.rows()[0] += rows(range);
            bins.add(bin);
        }
        return all.stream().map(bin -> new Task(bin.ranges())).toArray(Task[]::new);
    }

    /** Returns the rows of a range. Ranges that grow count equally. */
    private static long rows(Range range) {
        return range.end() == Range.OPEN ? 1 : range.end() - range.start();
    }

    /** Returns the difference of two positions by queue, where the second one is later. */
    static SortedMap<Queue, Long> backlog(Map<Queue, Long> from, Map<Queue, Held> held) {
        SortedMap<Queue, Long> backlog = new TreeMap<>();
        from.forEach((queue, offset) -> backlog.put(queue, Math.max(0, held.get(queue).end() - offset)));
        return backlog;
    }
}
