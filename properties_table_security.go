package main

const noJava = "no Java code runs here"

func anything(string) error { return nil }

// securityRules are the rows of ssl.* and sasl.* but for OAUTHBEARER's. What several of them say together,
// portProperties.secureConnection checks.
func securityRules() []propertyRule {
	const nothing = "the values of Java's own implementation alone are taken, and change nothing"
	return []propertyRule{
		mappedProperty("security.protocol", bothClients, "PLAINTEXT", setSecurityProtocol).meaning("PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),

		// ---- TLS.
		givenProperty("ssl.truststore.location", notEmpty).meaning("a file with the authorities' certificates; it is read again for new connections. Without one, and without ssl.truststore.certificates, the system's roots are trusted"),
		secretProperty("ssl.truststore.password", nil).meaning("of a JKS or PKCS12 store"),
		secretProperty("ssl.truststore.certificates", nil).meaning("the authorities' certificates as PEM text"),
		givenProperty("ssl.truststore.type", oneOfAnyCase("JKS", "PKCS12", "PEM")).meaning("JKS, PKCS12 or PEM").otherwise("Java's is JKS; here the store's content says it"),
		givenProperty("ssl.keystore.location", notEmpty).meaning("a file with the client's key and certificates, for mTLS; it is read again for new connections"),
		secretProperty("ssl.keystore.password", nil).meaning("of a JKS or PKCS12 store"),
		secretProperty("ssl.keystore.key", nil).meaning("the client's key as PEM text, PKCS #8, encrypted or not"),
		secretProperty("ssl.keystore.certificate.chain", nil).meaning("the client's certificates as PEM text"),
		givenProperty("ssl.keystore.type", oneOfAnyCase("JKS", "PKCS12", "PEM")).meaning("JKS, PKCS12 or PEM").otherwise("Java's is JKS; here the store's content says it"),
		secretProperty("ssl.key.password", nil).meaning("of the key in the key store or of ssl.keystore.key"),
		mappedProperty("ssl.endpoint.identification.algorithm", bothClients, "https", setEndpointIdentification).meaning("https: the certificate must be for the broker's host name; empty: its chain is verified, its name is not"),
		mappedProperty("ssl.enabled.protocols", bothClients, "TLSv1.2,TLSv1.3", setTLSVersions).meaning("TLSv1.2 and TLSv1.3; older ones are left out with a warning"),
		givenProperty("ssl.protocol", oneOfThese("TLSv1.3", "TLSv1.2", "TLS", "TLSv1.1", "TLSv1")).meaning("ssl.enabled.protocols counts").as("TLSv1.3"),
		mappedProperty("ssl.cipher.suites", bothClients, "", setCipherSuites).meaning("suites by Java's names; those of TLS 1.3 cannot be chosen among, and others that cannot be had are left out with a warning"),
		ignoredProperty("ssl.keymanager.algorithm", bothClients, noEffect, nothing, "SunX509", "PKIX").takes(oneOfThese("SunX509", "NewSunX509", "PKIX")),
		ignoredProperty("ssl.trustmanager.algorithm", bothClients, noEffect, nothing, "PKIX", "SunX509").takes(oneOfThese("PKIX", "SunX509", "X509", "X.509", "SunPKIX")),
		ignoredProperty("ssl.secure.random.implementation", bothClients, noEffect, "the operating system's random numbers are used").takes(oneOfThese("SHA1PRNG", "NativePRNG", "NativePRNGBlocking", "NativePRNGNonBlocking", "DRBG")),
		ignoredProperty("ssl.provider", bothClients, noEffect, noJava).takes(oneOfThese("SunJSSE")),
		ignoredProperty("ssl.engine.factory.class", bothClients, refused, "no Java code runs here, and leaving it out would verify less or more than it does; give the stores in ssl.*"),

		// ---- SASL.
		mappedProperty("sasl.mechanism", bothClients, "GSSAPI", setSASLMechanism).meaning(oneOf(saslMechanisms)),
		secretProperty("sasl.jaas.config", setJAAS).meaning("a login module with its options, as for Java"),
		givenProperty("sasl.client.callback.handler.class", anything).meaning("Amazon's IAMClientCallbackHandler with AWS_MSK_IAM, or nothing"),
		givenProperty("sasl.login.callback.handler.class", anything).meaning("Java's own one for the mechanism, or nothing; with OAUTHBEARER any other is refused"),
		ignoredProperty("sasl.login.class", bothClients, noEffect, noJava),
		givenProperty("sasl.kerberos.service.name", anything).meaning("the first part of the brokers' principals, before the option serviceName of sasl.jaas.config. KRB5_CONFIG or /etc/krb5.conf names the KDCs"),
		ignoredProperty("sasl.kerberos.kinit.cmd", bothClients, noEffect, "no program is run"),
		ignoredProperty("sasl.kerberos.min.time.before.relogin", bothClients, noEffect, "a ticket is asked for when one is needed").takes(whole(longMin, longMax)),
		ignoredProperty("sasl.kerberos.ticket.renew.jitter", bothClients, noEffect, "a ticket is asked for when one is needed").takes(fraction(-maxFraction, maxFraction)),
		ignoredProperty("sasl.kerberos.ticket.renew.window.factor", bothClients, noEffect, "a ticket is asked for when one is needed").takes(fraction(-maxFraction, maxFraction)),
	}
}

// oauthRules are the rows of OAUTHBEARER.
func oauthRules() []propertyRule {
	const brokers = "the broker verifies the token"
	const assertion = "it is for JWT assertions, which are not supported"
	const refresh = "a token is fetched anew for the first connection after four fifths of its life"
	r := []propertyRule{
		givenProperty("sasl.oauthbearer.token.endpoint.url", anything).meaning("https://… or http://… of a token endpoint that gives tokens for client credentials, or file:///… of a file with a token. Java's list of allowed URLs, a system property, is not needed"),
		givenProperty("sasl.oauthbearer.client.credentials.client.id", anything).meaning("the client's id, before the option clientId of sasl.jaas.config"),
		secretProperty("sasl.oauthbearer.client.credentials.client.secret", nil).meaning("the client's secret, before the option clientSecret"),
		givenProperty("sasl.oauthbearer.scope", anything).meaning("the scope that is asked for, before the option scope"),
		givenProperty("sasl.oauthbearer.header.urlencode", trueOrFalse).meaning("whether id and secret are URL-encoded in the request's header").as("false"),
		givenProperty("sasl.login.connect.timeout.ms", whole(intMin, intMax)).meaning("for connecting to the token endpoint").otherwise("Java waits for ever").as("10000"),
		givenProperty("sasl.login.read.timeout.ms", whole(intMin, intMax)).meaning("for the token endpoint's answer").otherwise("Java waits for ever").as("10000"),
		ignoredProperty("sasl.login.retry.backoff.ms", bothClients, noEffect, "asking for a token is tried again with the connection").takes(whole(longMin, longMax)),
		ignoredProperty("sasl.login.retry.backoff.max.ms", bothClients, noEffect, "asking for a token is tried again with the connection").takes(whole(longMin, longMax)),
		ignoredProperty("sasl.login.refresh.buffer.seconds", bothClients, noEffect, refresh).takes(whole(0, 3600)),
		ignoredProperty("sasl.login.refresh.min.period.seconds", bothClients, noEffect, refresh).takes(whole(0, 900)),
		ignoredProperty("sasl.login.refresh.window.factor", bothClients, noEffect, refresh).takes(fraction(0.5, 1)),
		ignoredProperty("sasl.login.refresh.window.jitter", bothClients, noEffect, refresh).takes(fraction(0, 0.25)),
		givenProperty("sasl.oauthbearer.jwt.retriever.class", anything).meaning("Java's DefaultJwtRetriever, ClientCredentialsJwtRetriever or FileJwtRetriever; the endpoint's URL says which").as(oauthPackage + "DefaultJwtRetriever"),
		ignoredProperty("sasl.oauthbearer.jwt.validator.class", bothClients, noEffect, brokers),
		ignoredProperty("sasl.oauthbearer.clock.skew.seconds", bothClients, noEffect, brokers).takes(whole(intMin, intMax)),
		ignoredProperty("sasl.oauthbearer.jwks.endpoint.refresh.ms", bothClients, noEffect, brokers).takes(whole(longMin, longMax)),
		ignoredProperty("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", bothClients, noEffect, brokers).takes(whole(longMin, longMax)),
		ignoredProperty("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", bothClients, noEffect, brokers).takes(whole(longMin, longMax)),
		ignoredProperty("sasl.oauthbearer.assertion.algorithm", bothClients, noEffect, assertion).takes(oneOfAnyCase("RS256", "ES256")),
		ignoredProperty("sasl.oauthbearer.assertion.claim.exp.seconds", bothClients, noEffect, assertion).takes(whole(0, 86400)),
		ignoredProperty("sasl.oauthbearer.assertion.claim.nbf.seconds", bothClients, noEffect, assertion).takes(whole(0, 3600)),
		ignoredProperty("sasl.oauthbearer.assertion.claim.jti.include", bothClients, noEffect, assertion).takes(trueOrFalse),
	}
	for _, name := range []string{"expected.audience", "expected.issuer", "jwks.endpoint.url", "scope.claim.name", "sub.claim.name"} {
		r = append(r, ignoredProperty("sasl.oauthbearer."+name, bothClients, noEffect, brokers))
	}
	for _, name := range []string{"claim.aud", "claim.iss", "claim.sub", "file", "private.key.file", "private.key.passphrase", "template.file"} {
		r = append(r, ignoredProperty("sasl.oauthbearer.assertion."+name, bothClients, noEffect, assertion))
	}
	return r
}
