package rmqpy.spark.remoting;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * A user and its secret, which sign requests. Without a user, requests are not signed.
 *
 * @param accessKey the user, or an empty text
 */
public record Credentials(String accessKey, String secretKey) implements Serializable {
    private static final String ALGORITHM = "HmacSHA1";

    /** Returns the fields of a request with its signature: over all values in the order of names, and the body. */
    Map<String, String> signed(Request request) throws RemotingException {
        if (accessKey.isEmpty()) {
            return request.fields();
        }
        TreeMap<String, String> fields = new TreeMap<>(request.fields());
        fields.put("AccessKey", accessKey);
        try {
            Mac mac = Mac.getInstance(ALGORITHM);
            mac.init(new SecretKeySpec(secretKey.getBytes(StandardCharsets.UTF_8), ALGORITHM));
            for (String value : fields.values()) {
                mac.update(value.getBytes(StandardCharsets.UTF_8));
            }
            fields.put("Signature", Base64.getEncoder().encodeToString(mac.doFinal(request.body())));
        } catch (GeneralSecurityException failure) {
            throw new RemotingException(Codes.NO_PERMISSION, "cannot sign a request", failure);
        }
        return fields;
    }

    /** Hides the secret. */
    @Override
    public String toString() {
        return "Credentials[" + accessKey + "]";
    }
}
