package interop;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Vectors for the allocation strategies, made with the official classes: {@code Allocations SEED COUNT}.
 *
 * <p>One line for each random shape, fields separated by blanks: strategy, setting, brokers with their queue counts
 * ({@code a:4,b:2}), members, and for each member the indexes of its queues in the sorted list ({@code 0,1;2,3}).
 * The topic is T; the room of broker {@code r@b} is r, and that of member {@code r~m} as well.
 */
public final class Allocations {
    private static final String[] STRATEGIES = {
        "averagely", "averagely_by_circle", "consistent_hash", "by_configuration", "by_machine_room",
        "machine_room_nearby-averagely", "machine_room_nearby-averagely_by_circle"
    };
    private static final int ROOMS = 4;

    private final Random random;

    private Allocations(long seed) {
        random = new Random(seed);
    }

    public static void main(String[] args) throws Exception {
        PrintStream lines = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err);
        Allocations allocations = new Allocations(Long.parseLong(args[0]));
        int count = Integer.parseInt(args[1]);
        for (int number = 0; number < count; number++) {
            lines.println(allocations.shape(STRATEGIES[number % STRATEGIES.length]));
        }
        lines.flush();
    }

    private String shape(String name) {
        List<MessageQueue> queues = new ArrayList<>();
        List<String> brokers = new ArrayList<>();
        for (String broker : names("@", 1 + random.nextInt(5))) {
            int count = random.nextInt(10);
            brokers.add(broker + ":" + count);
            for (int id = 0; id < count; id++) {
                queues.add(new MessageQueue("T", broker, id));
            }
        }
        Collections.sort(queues);
        List<String> members = new ArrayList<>(names("~", 1 + random.nextInt(12)));
        List<String> rooms = rooms();
        List<MessageQueue> fixed = queues.stream().filter(queue -> random.nextBoolean()).collect(Collectors.toList());
        AllocateMessageQueueStrategy strategy = strategy(name, rooms, fixed);
        String setting = name.equals("by_machine_room") ? String.join(",", rooms)
            : name.equals("by_configuration") ? indexes(fixed, queues) : "-";
        String shares = members.stream()
            .map(me -> queues.isEmpty() ? "" : indexes(strategy.allocate("G", me, queues, members), queues))
            .collect(Collectors.joining(";"));
        return String.join(" ", name, setting, String.join(",", brokers), String.join(",", members), shares + ".");
    }

    private static AllocateMessageQueueStrategy strategy(String name, List<String> rooms, List<MessageQueue> fixed) {
        switch (name) {
            case "averagely":
                return new AllocateMessageQueueAveragely();
            case "averagely_by_circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "consistent_hash":
                return new AllocateMessageQueueConsistentHash();
            case "by_configuration":
                AllocateMessageQueueByConfig configured = new AllocateMessageQueueByConfig();
                configured.setMessageQueueList(fixed);
                return configured;
            case "by_machine_room":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new HashSet<>(rooms));
                return byRoom;
            default:
                String inner = name.substring(name.indexOf('-') + 1);
                return new AllocateMachineRoomNearby(strategy(inner, rooms, fixed), new ByName());
        }
    }

    /** Sorted, unlike each other, each in some room. */
    private TreeSet<String> names(String separator, int count) {
        TreeSet<String> names = new TreeSet<>();
        while (names.size() < count) {
            names.add("r" + random.nextInt(ROOMS) + separator + random.nextInt(1000));
        }
        return names;
    }

    private List<String> rooms() {
        List<String> rooms = new ArrayList<>(Arrays.asList("r0", "r1", "r2", "r3"));
        Collections.shuffle(rooms, random);
        return rooms.subList(0, 1 + random.nextInt(ROOMS));
    }

    private static String indexes(List<MessageQueue> share, List<MessageQueue> queues) {
        return share.stream().map(queue -> String.valueOf(queues.indexOf(queue))).collect(Collectors.joining(","));
    }

    private static final class ByName implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("@")[0];
        }

        @Override
        public String consumerDeployIn(String member) {
            return member.split("~")[0];
        }
    }
}
