package interop;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** How fast a push consumer calls a listener that does nothing: {@code EmptyHandler NAMESRV GROUP TOPIC COUNT}. */
public final class EmptyHandler {
    private EmptyHandler() {}

    public static void main(String[] args) throws Exception {
        PrintStream lines = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err);
        long count = Long.parseLong(args[3]);
        AtomicLong seen = new AtomicLong();
        AtomicLong began = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            began.compareAndSet(0, System.nanoTime());
            if (seen.addAndGet(messages.size()) >= count) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
        double seconds = (System.nanoTime() - began.get()) / 1e9;
        double cpu = ProcessHandle.current().info().totalCpuDuration().get().toNanos() / 1e9;
        lines.println(seconds + " " + cpu);
        lines.flush();
        Runtime.getRuntime().halt(0);
    }
}
