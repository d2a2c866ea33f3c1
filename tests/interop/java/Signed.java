import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * A client of Apache that signs its requests. A line with words, separated by tabs, says what is done and with whose
 * keys; what is printed ends with a line {@code done}, after {@code error} and what the client says where it failed.
 *
 * <pre>send KEY SECRET NAMESRV TOPIC COUNT
 * push KEY SECRET NAMESRV TOPIC GROUP COUNT
 * pull KEY SECRET NAMESRV TOPIC GROUP COUNT
 * mqadmin KEY SECRET WORD...</pre>
 *
 * Those are clients of their own, which connect, and leave. Others stay, until {@code leave}: {@code open KEY SECRET
 * NAMESRV} a producer, of which {@code again KEY SECRET TOPIC} sends one more message, and {@code listen KEY SECRET
 * NAMESRV TOPIC GROUP} a push consumer, of which {@code heard KEY SECRET COUNT MS} waits for so many messages since the
 * last time, as long as that at most. {@code tls KEY SECRET true} lets clients that are started later use TLS, by
 * {@code tls.config.file}.
 */
public final class Signed {
    private static final long WAIT_MS = 60_000;

    private static DefaultMQProducer producer;
    private static DefaultMQPushConsumer consumer;
    private static int heard;

    private Signed() {}

    public static void main(String[] args) throws Exception {
        MQAdminStartup.main0(new String[0], null);
        var asked = new java.io.BufferedReader(new java.io.InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            String[] words = line.split("\t", -1);
            System.out.println("begin");
            try {
                RPCHook hook = words[1].isEmpty()
                    ? null : new AclClientRPCHook(new SessionCredentials(words[1], words[2]));
                switch (words[0]) {
                    case "send" -> send(hook, words[3], words[4], Integer.parseInt(words[5]));
                    case "push" -> push(hook, words[3], words[4], words[5], Integer.parseInt(words[6]));
                    case "pull" -> pull(hook, words[3], words[4], words[5], Integer.parseInt(words[6]));
                    case "tls" -> TlsSystemConfig.tlsEnable = Boolean.parseBoolean(words[3]);
                    case "open" -> producer = started(hook, words[3]);
                    case "again" -> send(producer, words[3], 1);
                    case "listen" -> listen(hook, words[3], words[4], words[5]);
                    case "heard" -> heard(Integer.parseInt(words[3]), Long.parseLong(words[4]));
                    case "leave" -> leave();
                    default -> MQAdminStartup.main0(List.of(words).subList(3, words.length).toArray(new String[0]), hook);
                }
            } catch (Exception e) {
                Throwable cause = e;
                while (cause.getCause() != null && !(cause instanceof MQBrokerException)) {
                    cause = cause.getCause();
                }
                System.out.println("error " + cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            System.out.println("\ndone");
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void send(RPCHook hook, String namesrv, String topic, int count) throws Exception {
        DefaultMQProducer producer = started(hook, namesrv);
        try {
            send(producer, topic, count);
        } finally {
            producer.shutdown();
        }
    }

    private static DefaultMQProducer started(RPCHook hook, String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("signed-producers", hook);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("send" + System.nanoTime());
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    private static void send(DefaultMQProducer producer, String topic, int count) throws Exception {
        for (int at = 0; at < count; at++) {
            System.out.println(producer.send(new Message(topic, ("" + at).getBytes(StandardCharsets.UTF_8))).getSendStatus());
        }
    }

    private static void push(RPCHook hook, String namesrv, String topic, String group, int count) throws Exception {
        CountDownLatch awaited = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = listening(hook, namesrv, topic, group, awaited::countDown);
        try {
            awaited.await(WAIT_MS, TimeUnit.MILLISECONDS);
            System.out.println("consumed " + (count - awaited.getCount()));
        } finally {
            consumer.shutdown();
        }
    }

    private static DefaultMQPushConsumer listening(
            RPCHook hook, String namesrv, String topic, String group, Runnable each) throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("push" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> each.run());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void listen(RPCHook hook, String namesrv, String topic, String group) throws Exception {
        heard = 0;
        consumer = listening(hook, namesrv, topic, group, Signed::note);
    }

    private static synchronized void note() {
        heard++;
        Signed.class.notifyAll();
    }

    private static synchronized void heard(int count, long waitMs) throws Exception {
        long end = System.currentTimeMillis() + waitMs;
        for (long left = waitMs; heard < count && left > 0; left = end - System.currentTimeMillis()) {
            Signed.class.wait(left);
        }
        System.out.println("heard " + heard);
        heard = 0;
    }

    private static void leave() {
        if (producer != null) {
            producer.shutdown();
        }
        if (consumer != null) {
            consumer.shutdown();
        }
        producer = null;
        consumer = null;
    }

    private static void pull(RPCHook hook, String namesrv, String topic, String group, int count) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group, hook);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("pull" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        try {
            int found = 0;
            for (long end = System.currentTimeMillis() + WAIT_MS; found < count && System.currentTimeMillis() < end; ) {
                for (MessageExt ignored : consumer.poll(1_000)) {
                    found++;
                }
            }
            consumer.commitSync();
            System.out.println("consumed " + found);
        } finally {
            consumer.shutdown();
        }
    }
}
