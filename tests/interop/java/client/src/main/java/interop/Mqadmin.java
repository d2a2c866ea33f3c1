package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Pattern;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.Options;
import org.apache.commons.cli.ParseException;
import org.apache.commons.cli.PosixParser;
import org.apache.rocketmq.srvutil.ServerUtil;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * The command line tool `mqadmin`, run inside this process: starting a JVM for each command would cost a second.
 *
 * <p>Several command lines run at once, each on a thread of its own whose output is kept apart: most of a command's
 * time is the sleep in which its client shuts down. A command that does not end is left behind, with what it has
 * printed so far; it ends with this process.
 */
final class Mqadmin {
    private static final int AT_ONCE_MAX = 12;
    /** A client is named after the millisecond it was made in; of two with one name the second complains, as an admin
     *  client or as a consumer does. */
    private static final Pattern SAME_NAME = Pattern.compile("has created already|has been created before");
    private static final InheritableThreadLocal<ByteArrayOutputStream> PRINTED = new InheritableThreadLocal<>();
    private static final InheritableThreadLocal<ByteArrayOutputStream> COMPLAINED = new InheritableThreadLocal<>();

    static {
        System.setOut(new PrintStream(new Apart(PRINTED, System.out), true));
        System.setErr(new PrintStream(new Apart(COMPLAINED, System.err), true));
        PRINTED.set(new ByteArrayOutputStream());
        MQAdminStartup.main0(new String[0], null); // Sets up the log, and prints the list of commands.
        PRINTED.remove();
    }

    private Mqadmin() {
    }

    /** The names of all sub-commands. */
    static List<String> names() {
        List<String> names = new ArrayList<>();
        commands().forEach(command -> names.add(command.commandName()));
        return names;
    }

    /** Runs `lines` and answers, in their order, what each printed and with which code its process would end. */
    static JSONArray run(JSONObject request) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(AT_ONCE_MAX, work -> {
            Thread thread = new Thread(work, "mqadmin");
            thread.setDaemon(true);
            return thread;
        });
        List<Run> runs = new ArrayList<>();
        List<Future<Integer>> codes = new ArrayList<>();
        for (Object line : request.getJSONArray("lines")) {
            Run run = new Run(((JSONArray) line).toArray(new String[0]));
            runs.add(run);
            codes.add(threads.submit(run));
        }
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(request.getLongValue("timeout_ms"));
        JSONArray answers = new JSONArray();
        for (int i = 0; i < runs.size(); i++) {
            Integer code;
            try {
                code = codes.get(i).get(Math.max(0, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
            } catch (TimeoutException stillRunning) {
                code = null;
            }
            answers.add(runs.get(i).answer(code));
        }
        threads.shutdown();
        return answers;
    }

    /** One command line. */
    private static final class Run implements Callable<Integer> {
        private final String[] args;
        private final ByteArrayOutputStream printed = new ByteArrayOutputStream();
        private final ByteArrayOutputStream complained = new ByteArrayOutputStream();

        Run(String[] args) {
            this.args = args;
        }

        @Override
        public Integer call() {
            PRINTED.set(printed);
            COMPLAINED.set(complained);
            try {
                int code = execute();
                while (SAME_NAME.matcher(complained.toString(StandardCharsets.UTF_8)).find()) {
                    printed.reset();
                    complained.reset();
                    code = execute();
                }
                return code;
            } finally {
                PRINTED.remove();
                COMPLAINED.remove();
            }
        }

        private int execute() {
            SubCommand command = made(args[0]);
            Options options = command.buildCommandlineOptions(ServerUtil.buildCommandlineOptions(new Options()));
            String[] rest = Arrays.copyOfRange(args, 1, args.length);
            try {
                CommandLine line = new PosixParser().parse(options, rest);
                System.setProperty("rocketmq.namesrv.addr", line.getOptionValue('n'));
                command.execute(line, options, null);
            } catch (ParseException mistake) {
                System.err.println(mistake);
                return 1;
            } catch (Throwable failure) {
                failure.printStackTrace();
            }
            return 0;
        }

        JSONObject answer(Integer code) {
            return new JSONObject()
                .fluentPut("out", printed.toString(StandardCharsets.UTF_8))
                .fluentPut("err", complained.toString(StandardCharsets.UTF_8))
                .fluentPut("exit", code);
        }
    }

    /** The command of this name, as a new process would make it: some remember their producer. */
    private static SubCommand made(String name) {
        for (SubCommand command : commands()) {
            if (command.commandName().equals(name)) {
                try {
                    return command.getClass().getDeclaredConstructor().newInstance();
                } catch (ReflectiveOperationException impossible) {
                    throw new IllegalStateException(impossible);
                }
            }
        }
        throw new IllegalArgumentException("mqadmin has no command " + name);
    }

    /** The list of the tool, whose field every release calls something else. */
    @SuppressWarnings("unchecked")
    private static List<SubCommand> commands() {
        try {
            for (Field field : MQAdminStartup.class.getDeclaredFields()) {
                if (field.getType() == List.class) {
                    field.setAccessible(true);
                    return (List<SubCommand>) field.get(null);
                }
            }
        } catch (IllegalAccessException impossible) {
            throw new IllegalStateException(impossible);
        }
        throw new IllegalStateException("mqadmin keeps its commands elsewhere");
    }

    /** Goes to the buffer of the thread that writes, or of the one that started it. */
    private static final class Apart extends OutputStream {
        private final ThreadLocal<ByteArrayOutputStream> buffer;
        private final PrintStream otherwise;

        Apart(ThreadLocal<ByteArrayOutputStream> buffer, PrintStream otherwise) {
            this.buffer = buffer;
            this.otherwise = otherwise;
        }

        @Override
        public void write(int one) throws IOException {
            target().write(one);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            target().write(bytes, offset, length);
        }

        private OutputStream target() {
            ByteArrayOutputStream own = buffer.get();
            return own == null ? otherwise : own;
        }
    }
}
