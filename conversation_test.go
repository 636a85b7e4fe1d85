package main

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// silentProcess takes a connection and says nothing, as a stopped process does, or one behind a full backlog.
func silentProcess(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		for buffer := make([]byte, 1024); ; {
			if _, err := theirs.Read(buffer); err != nil {
				return
			}
		}
	}()
	return ours, nil
}

// converseWith runs a conversation without ports over a connection that was never used, as after one that broke since
// discovery, and sends its result.
func converseWith(t *testing.T, stop context.Context, discoveryTimeout time.Duration) <-chan error {
	conn, err := dialProcess("process", silentProcess)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s := &sidecar{
		cfg: &Config{ReconnectMaxBackoff: 30 * time.Second, DiscoveryTimeout: discoveryTimeout}, log: log,
		ready: newReadiness(newMemFiles(), "/", nil, nil, log),
	}
	s.streak = newStreak(s.cfg, s.ready, log)
	done := make(chan error, 1)
	go func() {
		defer closeConn(conn)
		done <- s.converse(stop, "1", conn, 0, false)
	}()
	return done
}

func TestAStopEndsAConversationThatIsBeingOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := converseWith(t, ctx, time.Hour)
		time.Sleep(10 * time.Second)
		began := time.Now()
		stop()
		<-done
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestAConversationThatCannotBeOpenedFailsWithinTheDiscoveryTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := <-converseWith(t, t.Context(), time.Minute)
		if err == nil || !strings.Contains(err.Error(), "could not be opened: no answer within 60s") {
			t.Errorf("it ended with: %v", err)
		}
		if took := time.Since(began); took > time.Minute+time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
