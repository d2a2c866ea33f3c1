package rmqpy.spark.source;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * The start of a query, in its checkpoint: `sources/N/start.json`.
 *
 * <p>Spark logs a real-time batch when it ends. A query that fails in its first batch has logged nothing, and `latest`
 * has moved when it starts again.
 */
final class StartFile {
    private final Path path;
    private final Configuration configuration;

    StartFile(String folder, Configuration configuration) {
        path = new Path(folder, "start.json");
        this.configuration = configuration;
    }

    /** Returns the text of the file, or null if there is none. */
    String read() throws IOException {
        FileSystem files = path.getFileSystem(configuration);
        if (!files.exists(path)) {
            return null;
        }
        try (InputStream in = files.open(path)) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    /** Writes the file whole: a crash leaves none. */
    void write(String text) throws IOException {
        FileSystem files = path.getFileSystem(configuration);
        Path temporary = path.suffix("." + UUID.randomUUID() + ".tmp");
        files.mkdirs(path.getParent());
        try (OutputStream out = files.create(temporary, true)) {
            out.write(text.getBytes(StandardCharsets.UTF_8));
        }
        if (!files.rename(temporary, path)) {
            files.delete(temporary, false);
            throw new IOException("cannot write the start of the query to " + path);
        }
    }
}
