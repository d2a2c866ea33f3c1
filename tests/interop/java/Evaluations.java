import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * What Apache's broker makes of SQL92 expressions: a line with an expression, then names and values, all in Base64
 * and separated by tabs, is answered with {@code -} (it does not compile), {@code 1} or {@code 0}.
 */
public final class Evaluations {
    private Evaluations() {}

    public static void main(String[] args) throws Exception {
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        BufferedWriter answers = new BufferedWriter(
            new OutputStreamWriter(new FileOutputStream(FileDescriptor.out), StandardCharsets.US_ASCII));
        System.setOut(System.err);
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            String[] parts = line.split("\t", -1);
            Map<String, Object> properties = new HashMap<>();
            for (int at = 1; at + 1 < parts.length; at += 2) {
                properties.put(text(parts[at]), text(parts[at + 1]));
            }
            answers.write(answer(text(parts[0]), properties));
            answers.write('\n');
        }
        answers.flush();
        Runtime.getRuntime().halt(0);
    }

    private static char answer(String expression, Map<String, Object> properties) {
        Expression compiled;
        try {
            compiled = SelectorParser.parse(expression);
        } catch (Throwable refused) {
            return '-';
        }
        try {
            // A broker takes an evaluation that fails, and what is no boolean, for no match.
            return Boolean.TRUE.equals(compiled.evaluate(new Properties(properties))) ? '1' : '0';
        } catch (Throwable failed) {
            return '0';
        }
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    private static final class Properties implements EvaluationContext {
        private final Map<String, Object> values;

        Properties(Map<String, Object> values) {
            this.values = values;
        }

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return values;
        }
    }
}
