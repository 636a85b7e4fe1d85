// Package flowv1 is the streamlet protocol, ankka.flow.v1, generated from the .proto files below it.
package flowv1

//go:generate sh generate.sh
