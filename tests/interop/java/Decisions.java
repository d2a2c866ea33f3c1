import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.apache.rocketmq.auth.authentication.model.User;
import org.apache.rocketmq.auth.authorization.chain.AclAuthorizationHandler;
import org.apache.rocketmq.auth.authorization.context.DefaultAuthorizationContext;
import org.apache.rocketmq.auth.authorization.enums.Decision;
import org.apache.rocketmq.auth.authorization.enums.PolicyType;
import org.apache.rocketmq.auth.authorization.exception.AuthorizationException;
import org.apache.rocketmq.auth.authorization.model.Acl;
import org.apache.rocketmq.auth.authorization.model.Environment;
import org.apache.rocketmq.auth.authorization.model.Policy;
import org.apache.rocketmq.auth.authorization.model.PolicyEntry;
import org.apache.rocketmq.auth.authorization.model.Resource;
import org.apache.rocketmq.auth.authorization.provider.AuthorizationMetadataProvider;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.common.action.Action;

/**
 * What Apache's authorizer decides. {@code new} begins the policies of a user; {@code entry}, with type, resource,
 * actions, addresses and decision, adds to them; {@code ask}, with resource, actions and address, is answered with
 * {@code 1} or {@code 0}. Words are separated by tabs, and lists by commas.
 */
public final class Decisions {
    private static Acl acl;

    private Decisions() {}

    public static void main(String[] args) throws Exception {
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter answers =
            new BufferedWriter(new OutputStreamWriter(new FileOutputStream(FileDescriptor.out), StandardCharsets.UTF_8));
        System.setOut(System.err);
        AclAuthorizationHandler handler = handler();
        User alice = User.of("alice");
        List<PolicyEntry> custom = new ArrayList<>();
        List<PolicyEntry> other = new ArrayList<>();
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "new" -> {
                    custom = new ArrayList<>();
                    other = new ArrayList<>();
                    acl = Acl.of(alice, new ArrayList<>(List.of(
                        Policy.of(PolicyType.CUSTOM, custom), Policy.of(PolicyType.DEFAULT, other))));
                }
                case "entry" -> (words[1].equals("Custom") ? custom : other).add(PolicyEntry.of(
                    Resource.of(words[2]),
                    actions(words[3]),
                    words[4].isEmpty() ? null : Environment.of(Arrays.asList(words[4].split(","))),
                    Decision.getByName(words[5])));
                default -> {
                    DefaultAuthorizationContext context =
                        DefaultAuthorizationContext.of(alice, Resource.of(words[1]), actions(words[2]), words[3]);
                    answers.write(isAllowed(handler, context) ? "1\n" : "0\n");
                }
            }
        }
        answers.flush();
        Runtime.getRuntime().halt(0);
    }

    private static AclAuthorizationHandler handler() throws Exception {
        AclAuthorizationHandler handler = new AclAuthorizationHandler(new AuthConfig());
        Field provider = AclAuthorizationHandler.class.getDeclaredField("authorizationMetadataProvider");
        provider.setAccessible(true);
        provider.set(handler, Proxy.newProxyInstance(
            AuthorizationMetadataProvider.class.getClassLoader(),
            new Class<?>[] {AuthorizationMetadataProvider.class},
            (self, method, given) -> CompletableFuture.completedFuture(acl)));
        return handler;
    }

    private static List<Action> actions(String names) {
        List<Action> found = new ArrayList<>();
        for (String name : names.split(",")) {
            found.add(Action.getByName(name));
        }
        return found;
    }

    private static boolean isAllowed(AclAuthorizationHandler handler, DefaultAuthorizationContext context) {
        try {
            handler.handle(context, null).join();
            return true;
        } catch (CompletionException | AuthorizationException e) {
            Throwable cause = e instanceof CompletionException ? e.getCause() : e;
            if (cause instanceof AuthorizationException) {
                return false;
            }
            throw e;
        }
    }
}
