import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.config.SecurityConfig;
import org.apache.kafka.common.config.SslConfigs;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What Kafka's own Java clients say, one JSON object a line: of JAAS texts (jaas), of their properties (names), of values of them (values). */
public class Reference {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "jaas" -> jaas();
            case "names" -> names();
            case "values" -> values();
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0); // a client that was refused half-way may leave a thread
    }

    static void print(Map<String, ?> line) throws Exception {
        System.out.println(JSON.writeValueAsString(line));
    }

    // ---- jaas

    static final String[] MODULES = {"org.apache.kafka.common.security.plain.PlainLoginModule", "\"org.apache.kafka.common.security.scram.ScramLoginModule\"", "a$b.C-d_e", "3com.Mod", ""};
    static final String[] FLAGS = {"required", "REQUIRED", "Sufficient", "optional", "requisite", "\"required\"", "demanded", "", "1"};
    static final String[] NAMES = {"username", "password", "clientId", "extension_a", "\"quoted\"", "'single'", "user-name", "a.b", "1x", "$x", "-x", "ü"};
    static final String[] PIECES = {"alice", "s3cret", ";", "=", "\\\"", "'", "\\\\", "$", "@", "-", "+", "/", "//", "/*", "*/", " ", "\\n", "\\t", "\\101", "\\477", "\\377", "\\0", "\\18", "\\q", "\\", "\"", "ü", "€", "\uD83D\uDE00", "#", ".", "1", "9.9.9", "\n", "\r", "\t", "\u00a0", "\u0085", "_", "%41", "${x}"};

    static void jaas() throws Exception {
        Random random = new Random(20260918);
        List<String> texts = new ArrayList<>(List.of(
            "", ";", " ", "x", "x required", "x required;", "x required; y required;", "x required a=b", "x required a=b;;", "x required a b;", "x required a=;", "x required =b;",
            "x required a=-b;", "x required a=-1;", "x required a=1b;", "x required a=b1;", "x required a=b-c;", "x required a=b+c;", "x required a=b/c;", "x required a=b //c\n;",
            "x required a=b /* ; */;", "x required a=b /* \n*/;", "x required a=b /* **/;", "x required a=b /*;", "x required a=b / ignored\n;", "x required a=\"b\nc\";", "x required a=\"b\\\nc\";",
            "x required a='b\"c';", "x required a=\"b'c\";", "x required a=\"b", "x required a=\"\";", "x required a=b a=c;", "x\nrequired\ta=b\r\n;", "com.sun.security.auth.module.JndiLoginModule required;",
            "com.sun.security.auth.module.LdapLoginModule required a=b;", "'' required;", "x required 1=b;", "x required a==b;", "x required a=b c=d;", "x required a=b,c=d;", "x required a=b@c;", "x required a=\"b@c\";"));
        while (texts.size() < 320) {
            StringBuilder text = new StringBuilder(pick(random, MODULES, 9)).append(pick(random, new String[] {" ", "\n", "  ", "\t"}, 1)).append(pick(random, FLAGS, 9));
            for (int n = random.nextInt(4); n > 0; n--) {
                text.append(' ').append(pick(random, NAMES, 4)).append(pick(random, new String[] {"=", "=", " = ", "", "=="}, 9)).append(value(random));
            }
            texts.add(text.append(pick(random, new String[] {";", " ;", "", ";;", "; x required;"}, 9)).toString());
        }
        for (String text : texts) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("text", text);
            try {
                var entries = JaasContext.loadClientContext(Map.of(SaslConfigs.SASL_JAAS_CONFIG, new Password(text))).configurationEntries();
                Map<String, Object> options = new TreeMap<>();
                entries.get(0).getOptions().forEach((name, option) -> { if (name != null) options.put(name, option); });
                line.put("module", entries.get(0).getLoginModuleName());
                line.put("options", options);
            } catch (Exception e) {
                line.put("refused", true);
            }
            print(line);
        }
    }

    /** One of them, as a rule the first. */
    static String pick(Random random, String[] of, int rule) {
        return random.nextInt(rule + 1) > 0 ? of[0] : of[random.nextInt(of.length)];
    }

    static String value(Random random) {
        StringBuilder value = new StringBuilder();
        for (int n = random.nextInt(5); n >= 0; n--) value.append(PIECES[random.nextInt(PIECES.length)]);
        String quote = new String[] {"\"", "\"", "\"", "'", "'", ""}[random.nextInt(6)];
        return quote + value + quote;
    }

    // ---- names

    static void names() throws Exception {
        Map<String, Map<String, Object>> lines = new TreeMap<>();
        define(lines, "consumer", ConsumerConfig.configDef());
        define(lines, "producer", ProducerConfig.configDef());
        for (Class<?> constants : List.of(CommonClientConfigs.class, SaslConfigs.class, SslConfigs.class, SecurityConfig.class, ConsumerConfig.class, ProducerConfig.class)) {
            for (Field field : constants.getFields()) {
                if (field.getType() == String.class && Modifier.isStatic(field.getModifiers()) && field.getName().endsWith("_CONFIG")) {
                    String name = (String) field.get(null);
                    lines.computeIfAbsent(name, n -> { Map<String, Object> line = new LinkedHashMap<>(); line.put("name", n); return line; });
                }
            }
        }
        for (Map<String, Object> line : lines.values()) print(line);
    }

    static void define(Map<String, Map<String, Object>> lines, String client, ConfigDef definition) {
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            Map<String, Object> line = lines.computeIfAbsent(key.name, n -> new LinkedHashMap<>());
            line.put("name", key.name);
            line.put(client, true);
            line.put("type", key.type.name());
            line.put(client + "Default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "");
            line.put("validator", key.validator == null ? "" : key.validator.toString());
        }
    }

    // ---- values

    static final List<String> NUMBERS = List.of("-2", "-1", "0", "1", "+5", "511", "512", "16384", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "x", "1.5", "1 000", "0x10", "");
    static final List<String> FRACTIONS = List.of("-1", "-0.1", "0", "0.05", "0.25", "0.4", "0.5", "0.8", "1", "1.0", "1.5", "1e-1", "x", "");
    static final List<String> BOOLEANS = List.of("true", "false", "TRUE", "False", "yes", "1", "");
    static final Map<String, List<String>> TEXTS = Map.ofEntries(
        Map.entry("acks", List.of("all", "-1", "0", "1", "2", "ALL", "")),
        Map.entry("auto.offset.reset", List.of("earliest", "latest", "none", "LATEST", "by_duration:PT1H", "by_duration:P7D", "by_duration:-PT1H", "by_duration:1h", "by_duration", "by_duration:", "sometimes", "")),
        Map.entry("client.dns.lookup", List.of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only", "default", "USE_ALL_DNS_IPS", "")),
        Map.entry("compression.type", List.of("none", "gzip", "snappy", "lz4", "zstd", "GZIP", "brotli", "")),
        Map.entry("group.protocol", List.of("classic", "consumer", "CONSUMER", "next", "")),
        Map.entry("group.instance.id", List.of("a", "a.b_c-1", "a b", "..", "")),
        Map.entry("isolation.level", List.of("read_committed", "read_uncommitted", "READ_COMMITTED", "serializable", "")),
        Map.entry("metadata.recovery.strategy", List.of("none", "rebootstrap", "REBOOTSTRAP", "never", "")),
        Map.entry("metrics.recording.level", List.of("INFO", "DEBUG", "TRACE", "info", "WARN", "")),
        Map.entry("security.protocol", List.of("PLAINTEXT", "plaintext", "SSL", "ssl", "TLS", "")),
        Map.entry("partition.assignment.strategy", List.of(
            "org.apache.kafka.clients.consumer.RangeAssignor", "org.apache.kafka.clients.consumer.RoundRobinAssignor", "org.apache.kafka.clients.consumer.StickyAssignor",
            "org.apache.kafka.clients.consumer.RangeAssignor,org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "range", "RangeAssignor", "com.example.Missing", "")),
        Map.entry("partitioner.class", List.of("org.apache.kafka.clients.producer.RoundRobinPartitioner", "com.example.Missing", "")),
        Map.entry("ssl.protocol", List.of("TLSv1.3", "TLSv1.2", "TLS", "nonsense", "")),
        Map.entry("ssl.enabled.protocols", List.of("TLSv1.3", "TLSv1.2", "TLSv1.2,TLSv1.3", "TLSv1.4", "TLSv1.1", "")),
        Map.entry("ssl.cipher.suites", List.of("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_AES_256_GCM_SHA384", "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "nonsense", "")),
        Map.entry("ssl.truststore.type", List.of("JKS", "PKCS12", "PEM", "nonsense", "")),
        Map.entry("ssl.keystore.type", List.of("JKS", "PKCS12", "PEM", "nonsense", "")),
        Map.entry("ssl.endpoint.identification.algorithm", List.of("https", "HTTPS", "", "nonsense")),
        Map.entry("ssl.truststore.location", List.of("/no/such/file", "")),
        Map.entry("ssl.keystore.location", List.of("/no/such/file", "")),
        Map.entry("ssl.truststore.password", List.of("x", "")),
        Map.entry("ssl.keystore.password", List.of("x", "")),
        Map.entry("ssl.key.password", List.of("x", "")),
        Map.entry("ssl.truststore.certificates", List.of("x", "")),
        Map.entry("ssl.keystore.certificate.chain", List.of("x", "")),
        Map.entry("ssl.keystore.key", List.of("x", "")),
        Map.entry("sasl.mechanism", List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-1", "plain", "NONSENSE", "")),
        Map.entry("sasl.jaas.config", List.of(
            "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password=\"b\";", "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password=\"b\"",
            "com.example.Missing required;", "nonsense", "")),
        Map.entry("config.providers", List.of("")));

    static void values() throws Exception {
        for (String client : List.of("consumer", "producer")) {
            ConfigDef definition = client.equals("consumer") ? ConsumerConfig.configDef() : ProducerConfig.configDef();
            for (String name : new TreeSet<>(definition.names())) {
                for (String value : candidates(definition.configKeys().get(name))) {
                    Map<String, Object> line = new LinkedHashMap<>();
                    line.put("client", client);
                    line.put("name", name);
                    line.put("value", value);
                    String with = name.startsWith("ssl.") ? "SSL" : name.startsWith("sasl.") ? "SASL_PLAINTEXT" : "PLAINTEXT";
                    line.put("protocol", with);
                    line.put("taken", takes(client, name, value, with));
                    print(line);
                }
            }
        }
    }

    static List<String> candidates(ConfigDef.ConfigKey key) {
        if (TEXTS.containsKey(key.name)) return TEXTS.get(key.name);
        return switch (key.type) {
            case INT, LONG, SHORT -> NUMBERS;
            case DOUBLE -> FRACTIONS;
            case BOOLEAN -> BOOLEANS;
            case STRING, PASSWORD -> List.of("x", "");
            default -> List.of(); // lists and classes of Java code
        };
    }

    static boolean takes(String client, String name, String value, String protocol) {
        Map<String, Object> properties = new LinkedHashMap<>();
        properties.put("bootstrap.servers", "127.0.0.1:1");
        properties.put("security.protocol", protocol);
        if (protocol.startsWith("SASL")) {
            properties.put("sasl.mechanism", "PLAIN");
            properties.put("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password=\"b\";");
        }
        if (client.equals("consumer")) properties.put("group.id", "g");
        properties.put(name, value);
        try {
            if (client.equals("consumer")) {
                var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                aside(() -> consumer.close(CloseOptions.timeout(Duration.ZERO)));
            } else {
                var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
                aside(() -> producer.close(Duration.ZERO));
            }
            return true;
        } catch (Exception e) {
            if (System.getenv("WHY") != null) System.err.println(name + "=" + value + ": " + e.getMessage() + " / " + e.getCause());
            return false;
        }
    }

    /** Closing waits for what the tried value says, which may be for ever. */
    static void aside(Runnable closing) throws InterruptedException {
        Thread thread = new Thread(closing);
        thread.start();
        thread.join(300);
    }
}
