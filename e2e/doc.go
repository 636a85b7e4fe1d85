// Package e2e holds the suites on real parts: Apache Kafka's own brokers as processes, the sidecar's binary as a process, and as the
// streamlet's process either the double of package testkit or the published Python package. They are built with the tag e2e alone:
//
//	go test -tags e2e -v ./e2e
//
// fetches what is missing by setup.sh first, and with -v prints what came twice where that is allowed. ANKKA_FLOW_SIDECAR names a
// binary to test in place of the one of this module.
//
// Some tests are short by themselves and measure what is promised when they are given the time: -soak 1h (with -timeout 2h),
// -poison 10m, -outage 2m, -backlog 2147483648.
package e2e
