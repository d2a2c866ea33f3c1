package interop;

import com.alibaba.fastjson.JSONObject;
import org.apache.rocketmq.client.ClientConfig;

/** What every client is told: its name servers, and its namespace where it has one. */
final class Settings {
    private Settings() {
    }

    @SuppressWarnings("deprecation")
    static void apply(ClientConfig client, JSONObject request, String instance) {
        client.setNamesrvAddr(request.getString("namesrv"));
        client.setInstanceName(instance);
        if (request.getString("namespace") != null) {
            client.setNamespace(request.getString("namespace"));
        }
    }
}
