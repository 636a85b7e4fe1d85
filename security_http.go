package main

import (
	"context"
	"net"
	"net/http"
	"time"
)

// httpClient is for one request to where tokens and credentials come from, which is seldom. It goes over the sidecar's own
// network, without a proxy, and follows no redirect, which would take the secret elsewhere.
func httpClient(n network, tls *tlsClient, connectTimeout time.Duration) *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		return n.dial(ctx, network, address)
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       dial,
			DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				if err != nil {
					return nil, err
				}
				secured, err := tls.secure(ctx, conn, address, func(string) {})
				if err != nil {
					_ = conn.Close()
				}
				return secured, err
			},
		},
	}
}
