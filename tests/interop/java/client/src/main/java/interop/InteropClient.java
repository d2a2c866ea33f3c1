package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;

/**
 * A Java client that does what it is told: one JSON request per line on stdin, one JSON answer per line on stdout.
 *
 * <p>Owns the line protocol (described in clients.py). Requests run one after the other on the main thread; consumed
 * messages are written as events from the client's own threads. The process ends when stdin does.
 */
public final class InteropClient {
    private final PrintStream lines;
    private final Producers producers = new Producers();
    private final Listeners listeners = new Listeners(this::write);
    private final Transactions transactions = new Transactions(this::write);
    private final Requests requests = new Requests();

    private InteropClient(PrintStream lines) {
        this.lines = lines;
    }

    public static void main(String[] args) throws IOException {
        PrintStream lines = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err); // Whatever the libraries print must not break the protocol.
        new InteropClient(lines).serve(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        Runtime.getRuntime().halt(0);
    }

    private void serve(BufferedReader requests) throws IOException {
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JSONObject request = JSON.parseObject(line);
            JSONObject answer = new JSONObject().fluentPut("id", request.get("id"));
            try {
                answer.put("ok", answerTo(request));
            } catch (Throwable failure) {
                answer.put("error", stackTrace(failure));
            }
            write(answer);
        }
    }

    private Object answerTo(JSONObject request) throws Exception {
        switch (request.getString("verb")) {
            case "send":
                return producers.send(request);
            case "recall":
                return producers.recall(request);
            case "listen":
                return listeners.start(request);
            case "stop":
                return listeners.stop(request.getString("listener"));
            case "pull":
                return Pulls.pull(request);
            case "pop":
                // By its name: it is not built for the client of 4.9.
                return Class.forName("interop.Pops").getDeclaredMethod("run", JSONObject.class).invoke(null, request);
            case "transact":
                return transactions.transact(request);
            case "leave":
                return transactions.leave(request.getString("group"));
            case "request":
                return requests.request(request);
            case "reply":
                return requests.reply(request);
            case "stop-reply":
                return requests.stop(request.getString("listener"));
            case "mqadmin":
                return Mqadmin.run(request);
            case "dashboard":
                return Dashboard.visit(request);
            case "mqadmin-names":
                return Mqadmin.names();
            default:
                throw new IllegalArgumentException("unknown verb " + request.getString("verb"));
        }
    }

    private synchronized void write(JSONObject line) {
        lines.println(line.toJSONString());
        lines.flush();
    }

    private static String stackTrace(Throwable failure) {
        StringWriter text = new StringWriter();
        failure.printStackTrace(new PrintWriter(text));
        return text.toString();
    }
}
