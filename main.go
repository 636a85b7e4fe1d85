// Command ankka-flow-sidecar runs beside a streamlet's process and owns everything Kafka for it.
package main

func main() {}
