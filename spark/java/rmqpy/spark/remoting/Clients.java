package rmqpy.spark.remoting;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/** The clients of this process: tasks with equal settings share one, and connections outlive tasks. */
public final class Clients {
    /** Maximum number of clients that no task uses. */
    private static final int IDLE_MAX = 4;

    /** The least recently used first. */
    private static final Map<Client.Settings, Shared> CLIENTS = new LinkedHashMap<>(16, 0.75f, true);

    private static final class Shared {
        final Client client;
        int users;

        Shared(Client client) {
            this.client = client;
        }
    }

    private Clients() {}

    /** Returns the client with these settings. Each call needs one of {@link #release}. */
    public static synchronized Client acquire(Client.Settings settings) {
        Shared shared = CLIENTS.computeIfAbsent(settings, each -> new Shared(new Client(each)));
        shared.users++;
        return shared.client;
    }

    /** Ends the use of a client, and closes those that were idle for longest if there are too many. */
    public static synchronized void release(Client.Settings settings) {
        CLIENTS.get(settings).users--;
        long idle = CLIENTS.values().stream().filter(each -> each.users == 0).count();
        Iterator<Shared> oldest = CLIENTS.values().iterator();
        while (idle > IDLE_MAX && oldest.hasNext()) {
            Shared shared = oldest.next();
            if (shared.users == 0) {
                shared.client.close();
                oldest.remove();
                idle--;
            }
        }
    }
}
