import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends one record for each hex key on standard input, placed by nothing but Java's own default. Arguments: bootstrap servers, topic. */
public class JavaProducer {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        AtomicReference<Exception> failed = new AtomicReference<>();
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
                var lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                producer.send(new ProducerRecord<>(args[1], HexFormat.of().parseHex(line), new byte[0]), (metadata, e) -> {
                    if (e != null) failed.compareAndSet(null, e);
                });
            }
        }
        if (failed.get() != null) throw failed.get();
    }
}
