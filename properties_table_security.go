package main

// securityRules are the rows of ssl.* and sasl.*. What several of them say together, portProperties.secureConnection checks.
func securityRules() []propertyRule {
	anything := func(*portProperties, string) error { return nil }
	given := func(name string) propertyRule { return mappedProperty(name, bothClients, "", anything) }
	return []propertyRule{
		mappedProperty("security.protocol", bothClients, "PLAINTEXT", setSecurityProtocol),

		// ---- TLS.
		given("ssl.truststore.location"),
		given("ssl.truststore.password"),
		given("ssl.truststore.certificates"),
		mappedProperty("ssl.truststore.type", bothClients, "", setStoreType),
		given("ssl.keystore.location"),
		given("ssl.keystore.password"),
		given("ssl.keystore.key"),
		given("ssl.keystore.certificate.chain"),
		mappedProperty("ssl.keystore.type", bothClients, "", setStoreType),
		given("ssl.key.password"),
		mappedProperty("ssl.endpoint.identification.algorithm", bothClients, "https", setEndpointIdentification),
		mappedProperty("ssl.enabled.protocols", bothClients, "TLSv1.2,TLSv1.3", setTLSVersions),
		mappedProperty("ssl.cipher.suites", bothClients, "", setCipherSuites),
		ignoredProperty("ssl.", bothClients, noEffect, "no Java code runs here"),

		// ---- SASL.
		mappedProperty("sasl.mechanism", bothClients, "GSSAPI", setSASLMechanism),
		mappedProperty("sasl.jaas.config", bothClients, "", setJAAS),
		ignoredProperty("sasl.", bothClients, noEffect, "no Java code runs here"),
	}
}
