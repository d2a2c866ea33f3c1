package rmqpy.spark.remoting;

import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * Encryption of connections. Files are PEM, at these paths on the driver and every executor; an empty text stands for
 * none.
 *
 * @param serverName the name in the certificates of servers, if it differs from their addresses
 */
public record Tls(String caFile, String certFile, String keyFile, String serverName, boolean skipVerify)
        implements Serializable {
    private static final Pattern KEY =
            Pattern.compile("-----BEGIN PRIVATE KEY-----([^-]+)-----END PRIVATE KEY-----", Pattern.DOTALL);
    private static final List<String> KEY_ALGORITHMS = List.of("RSA", "EC", "Ed25519");
    private static final char[] NO_PASSWORD = new char[0];

    /** Returns an encrypted socket over a connected one, after the handshake. */
    Socket over(Socket socket, String host, int timeoutMs) throws IOException {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(keys(), trust(), null);
            String name = serverName.isEmpty() ? host : serverName;
            SSLSocket encrypted =
                    (SSLSocket) context.getSocketFactory().createSocket(socket, name, socket.getPort(), true);
            if (!skipVerify) {
                SSLParameters parameters = encrypted.getSSLParameters();
                parameters.setEndpointIdentificationAlgorithm("HTTPS");
                encrypted.setSSLParameters(parameters);
            }
            encrypted.setSoTimeout(timeoutMs);
            encrypted.startHandshake();
            encrypted.setSoTimeout(0);
            return encrypted;
        } catch (GeneralSecurityException failure) {
            throw new IOException("cannot set up TLS: " + failure.getMessage(), failure);
        }
    }

    private KeyManager[] keys() throws GeneralSecurityException, IOException {
        if (certFile.isEmpty()) {
            return null;
        }
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        store.setKeyEntry("client", privateKey(), NO_PASSWORD, certificates(certFile).toArray(Certificate[]::new));
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, NO_PASSWORD);
        return factory.getKeyManagers();
    }

    private PrivateKey privateKey() throws GeneralSecurityException, IOException {
        Matcher found = KEY.matcher(Files.readString(Path.of(keyFile), StandardCharsets.US_ASCII));
        if (!found.find()) {
            throw new GeneralSecurityException(
                    "'" + keyFile + "' is not an unencrypted PKCS #8 key; convert it: openssl pkcs8 -topk8 -nocrypt");
        }
        byte[] bytes = Base64.getMimeDecoder().decode(found.group(1));
        for (String algorithm : KEY_ALGORITHMS) {
            try {
                return KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(bytes));
            } catch (InvalidKeySpecException other) {
                // A key of another algorithm.
            }
        }
        throw new GeneralSecurityException("'" + keyFile + "' is not a key of " + String.join(", ", KEY_ALGORITHMS));
    }

    private TrustManager[] trust() throws GeneralSecurityException, IOException {
        if (skipVerify) {
            return new TrustManager[] {new TrustEverything()};
        }
        if (caFile.isEmpty()) {
            return null;
        }
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        int number = 0;
        for (Certificate certificate : certificates(caFile)) {
            store.setCertificateEntry("ca-" + number++, certificate);
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory.getTrustManagers();
    }

    private static Collection<? extends Certificate> certificates(String file)
            throws GeneralSecurityException, IOException {
        try (InputStream in = Files.newInputStream(Path.of(file))) {
            return CertificateFactory.getInstance("X.509").generateCertificates(in);
        }
    }

    /** Accepts any certificate, as `tls.skipVerify` asks. */
    private static final class TrustEverything extends X509ExtendedTrustManager {
        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type) {}

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket) {}

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine) {}

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type) {}

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket) {}

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine) {}

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }
}
