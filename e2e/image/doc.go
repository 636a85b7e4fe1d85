// Package image holds the suite of the Dockerfile's image: it builds it without a container engine, and runs it as the operator does. It
// needs root on Debian, installs what is missing there, and takes two to three minutes:
//
//	go test -tags e2e -v ./e2e/image
package image
