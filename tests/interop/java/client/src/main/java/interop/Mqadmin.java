package interop;

import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The command line tool `mqadmin`, run inside this process: starting a JVM for each command would cost a second. */
final class Mqadmin {
    private Mqadmin() {
    }

    static JSONObject run(JSONObject request) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, "UTF-8"));
        System.setErr(new PrintStream(complained, true, "UTF-8"));
        try {
            MQAdminStartup.main0(request.getJSONArray("args").toArray(new String[0]), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return new JSONObject()
            .fluentPut("out", printed.toString(StandardCharsets.UTF_8))
            .fluentPut("err", complained.toString(StandardCharsets.UTF_8));
    }
}
