import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A member of a consumer group as people write it: it passes each record on as it is, and has its offsets committed by the client
 * itself, in the next poll. All properties are Java's defaults, but for where a partition without a commit begins. Each poll's number
 * of records is a line. It stops at SIGTERM. Arguments: bootstrap servers, group, topic to read, topic to write, and further
 * properties of the consumer as key=value.
 */
public class JavaMember {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        Properties reading = new Properties();
        reading.putAll(properties);
        reading.put("group.id", args[1]);
        reading.put("auto.offset.reset", "earliest");
        for (int i = 4; i < args.length; i++) {
            String[] property = args[i].split("=", 2);
            reading.put(property[0], property[1]);
        }
        AtomicBoolean stopping = new AtomicBoolean();
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
                var consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Thread main = Thread.currentThread();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                stopping.set(true);
                consumer.wakeup();
                try {
                    main.join();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }));
            consumer.subscribe(List.of(args[2]));
            while (!stopping.get()) {
                var records = consumer.poll(Duration.ofSeconds(1));
                List<Future<RecordMetadata>> written = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> r : records) {
                    byte[] value = r.value() == null ? new byte[0] : r.value(); // the streamlets' protocol has no null
                    written.add(producer.send(new ProducerRecord<>(args[3], null, r.key(), value, r.headers())));
                }
                for (var one : written) one.get();
                System.out.println(records.count());
            }
        } catch (WakeupException e) {
            if (!stopping.get()) throw e;
        }
    }
}
