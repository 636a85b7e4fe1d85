// Package e2e holds the suites on real parts: Apache Kafka's own brokers as processes, the sidecar's binary as a process, and as the
// streamlet's process either the double of package testkit or the published Python package. They are built with the tag e2e alone:
//
//	go test -tags e2e -v ./e2e
//
// fetches what is missing by setup.sh first, and with -v prints what came twice where that is allowed. It takes five to six minutes on
// two cores. ANKKA_FLOW_SIDECAR names a binary to test in place of the one of this module.
package e2e
