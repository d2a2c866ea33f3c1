import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import org.apache.rocketmq.acl.AccessResource;
import org.apache.rocketmq.acl.common.AclException;
import org.apache.rocketmq.acl.plain.PlainAccessValidator;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * What Apache's validator of plain accounts decides. {@code home} names the folder whose files count from then on;
 * {@code ask}, with code, address, body in Base64, and names and values of fields, is answered with {@code 1} or
 * {@code 0}. Words are separated by tabs.
 */
public final class PlainDecisions {
    private PlainDecisions() {}

    public static void main(String[] args) throws Exception {
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter answers =
            new BufferedWriter(new OutputStreamWriter(new FileOutputStream(FileDescriptor.out), StandardCharsets.UTF_8));
        System.setOut(System.err);
        PlainAccessValidator validator = null;
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("home")) {
                System.setProperty("rocketmq.home.dir", words[1]);
                validator = new PlainAccessValidator();
            } else {
                answers.write(isAllowed(validator, words) ? "1\n" : "0\n");
            }
        }
        answers.flush();
        Runtime.getRuntime().halt(0);
    }

    private static boolean isAllowed(PlainAccessValidator validator, String[] words) {
        RemotingCommand request = RemotingCommand.createRequestCommand(Integer.parseInt(words[1]), null);
        HashMap<String, String> fields = new HashMap<>();
        for (int at = 4; at + 1 < words.length; at += 2) {
            fields.put(words[at], words[at + 1]);
        }
        request.setExtFields(fields);
        byte[] body = Base64.getDecoder().decode(words[3]);
        request.setBody(body.length == 0 ? null : body);
        try {
            AccessResource found = validator.parse(request, words[2]);
            validator.validate(found);
            return true;
        } catch (AclException e) {
            return false;
        }
    }
}
