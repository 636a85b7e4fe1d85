//go:build e2e

package image

import (
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"debug/elf"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/flowv1"
	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	largest = 15_000_000 // bytes of the image as a registry sends it
	alive   = `test $(( $(date +%s) - $(stat -c %Y /tmp/flow/alive) )) -lt 15`
)

// podman runs the tool on the storage that build.sh made.
type podman struct {
	t       *testing.T
	storage string
	here    string // the image of this machine's architecture
}

// in is the same for a part of the test.
func (p podman) in(t *testing.T) podman {
	p.t = t
	return p
}

func (p podman) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "podman", append([]string{"--runtime", "runc", "--cgroup-manager", "cgroupfs"}, args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_STORAGE_CONF="+p.storage)
	return cmd
}

// try gives the exit code.
func (p podman) try(args ...string) (out string, code int) {
	p.t.Helper()
	text, err := p.command(context.Background(), args...).CombinedOutput()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		p.t.Fatal(err)
	}
	if exited != nil {
		code = exited.ExitCode()
	}
	return strings.TrimSpace(string(text)), code
}

func (p podman) run(args ...string) string {
	p.t.Helper()
	out, code := p.try(args...)
	if code != 0 {
		p.t.Fatalf("podman %s: exit %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

func TestTheImageRunsAsTheOperatorRunsIt(t *testing.T) {
	dir := t.TempDir()
	authority := newAuthority(t)
	ca := filepath.Join(dir, "ca.pem")
	write(t, ca, authority.rootPEM)
	if out, err := exec.Command("./build.sh", dir, ca).CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, out)
	}
	p := podman{t: t, storage: filepath.Join(dir, "storage.conf")}
	p.here = "localhost/sidecar:" + p.run("info", "--format", "{{.Host.Arch}}")
	t.Cleanup(func() {
		p.try("rm", "-af", "-t", "0")
		p.try("rmi", "-af")
	})

	t.Run("each architecture's image is small and holds what it says", func(t *testing.T) {
		for architecture, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
			p.in(t).contents(architecture, machine)
		}
	})
	t.Run("it runs as the user that it names", func(t *testing.T) {
		p := p.in(t)
		if user := p.run("inspect", "--format", "{{.Config.User}}", p.here); user != "65532:65532" {
			t.Errorf("the image's user is %q, which Kubernetes cannot tell from root", user)
		}
		version := p.run(append(restricted(""), p.here, "--version")...)
		if !strings.HasPrefix(version, "ankka-flow-sidecar image-test") || !strings.Contains(version, "c0ffee") {
			t.Errorf("--version says %q", version)
		}
	})
	t.Run("a pod's life", func(t *testing.T) { life(p.in(t), authority, dir) })
}

// restricted are the arguments of a container that may do nothing but write to /tmp.
func restricted(user string) []string {
	args := []string{"run", "--rm", "--read-only", "--tmpfs", "/tmp:rw,mode=1777", "--cap-drop", "all", "--security-opt", "no-new-privileges",
		"--memory", "64m", "--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"}
	if user != "" {
		args = append(args, "--user", user)
	}
	return args
}

// contents judges an architecture's image.
func (p podman) contents(architecture string, machine elf.Machine) {
	p.t.Helper()
	image := "localhost/sidecar:" + architecture
	if got := p.run("inspect", "--format", "{{.Architecture}}", image); got != architecture {
		p.t.Errorf("the image for %s says that it is for %s", architecture, got)
	}
	var size counter
	packed := gzip.NewWriter(&size)
	save := p.command(p.t.Context(), "save", image)
	save.Stdout = packed
	if err := save.Run(); err != nil {
		p.t.Fatal(err)
	}
	packed.Close()
	p.t.Logf("%s: %.1f MB compressed", architecture, float64(size)/1e6)
	if size > largest {
		p.t.Errorf("the image for %s has %d bytes", architecture, size)
	}
	root := p.run("image", "mount", image)
	defer p.run("image", "unmount", image)
	var files []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files = append(files, strings.TrimPrefix(path, root))
		info, err := entry.Info()
		if err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			p.t.Errorf("%s gives another user's rights", path)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	want := []string{"/bin/ankka-flow-sidecar", "/bin/busybox", "/bin/date", "/bin/sh", "/bin/sleep", "/bin/stat", "/bin/test",
		"/etc/group", "/etc/passwd", "/etc/ssl/certs/ca-certificates.crt"}
	if slices.Sort(files); !slices.Equal(files, want) {
		p.t.Errorf("the image for %s holds %q", architecture, files)
	}
	for _, name := range want[:2] {
		binary, err := elf.Open(filepath.Join(root, name))
		if err != nil {
			p.t.Fatal(err)
		}
		libraries, err := binary.ImportedLibraries()
		if binary.Machine != machine || len(libraries) > 0 {
			p.t.Errorf("%s of %s is for %v and needs %v (%v)", name, architecture, binary.Machine, libraries, err)
		}
		binary.Close()
	}
}

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// life is that of a sidecar in a pod: before its process is there, at work over TLS, and stopped.
func life(p podman, authority *authority, dir string) {
	t := p.t
	spec := testkit.CartRouter()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "in", "valid", "review"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{authority.server}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: authority.pool}}
	kafka := &testkit.Kafka{Seeds: cluster.ListenAddrs(), Dial: dialer.DialContext}
	// As for a broker whose certificate is from a public authority: no truststore is named.
	reach := testkit.Reach{Connection: map[string]string{"security.protocol": "SSL"}}
	deployment := testkit.Deployment{Pipeline: "cart", Streamlet: "router", Servers: strings.Join(kafka.Seeds, ","),
		Inlets:  []testkit.Inlet{{Name: "in", Topic: "in", Reach: reach}},
		Outlets: []testkit.OutletPort{{Name: "valid", Topic: "valid", Reach: reach}, {Name: "review", Topic: "review", Reach: reach}}}
	config := filepath.Join(dir, "config")
	if err := os.Mkdir(config, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(config, "descriptor.json"), testkit.DescriptorJSON(spec))
	write(t, filepath.Join(config, "streamlet.conf"), deployment.Operator())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	_, metricsPort, _ := net.SplitHostPort(metrics.Addr().String())
	metrics.Close()

	const name = "pod"
	uid, err := rand.Int(rand.Reader, big.NewInt(1_000_000_000))
	if err != nil {
		t.Fatal(err)
	}
	args := append(restricted(fmt.Sprintf("%d:0", 10_000+uid.Int64())), "-d", "--name", name, "--volume", config+":/etc/flow/config:ro",
		"--env", "FLOW_PROCESS_ADDRESS="+listener.Addr().String(), "--env", "FLOW_METRICS_PORT="+metricsPort, p.here)
	args = slices.DeleteFunc(args, func(arg string) bool { return arg == "--rm" }) // its log is to be read after its end
	p.run(args...)
	defer func() {
		if t.Failed() {
			out, _ := p.try("logs", name)
			t.Logf("the sidecar's log:\n%s", out)
		}
	}()

	testkit.Eventually(t, time.Minute, "the liveness probe succeeds", func() (bool, string) {
		out, code := p.try("exec", name, "sh", "-c", alive)
		return code == 0, out
	})
	if out, code := p.try("exec", name, "test", "-f", "/tmp/flow/ready"); code != 1 {
		t.Errorf("without a process the readiness probe ends with %d: %s", code, out)
	}
	if listed := p.run("exec", name, "sh", "-c", `test -w /tmp && ! test -w / && ! test -w /bin && echo so`); listed != "so" {
		t.Errorf("the root can be written: %s", listed)
	}

	process := testkit.NewProcess(listener, spec, func(b *flowv1.Batch) (emits []*flowv1.Emit, err error) {
		for _, in := range b.GetRecords() {
			emits = append(emits, &flowv1.Emit{Outlet: "valid", Record: in.GetRecord()})
		}
		return emits, nil
	})
	defer process.Close()
	testkit.Eventually(t, time.Minute, "the readiness probe succeeds", func() (bool, string) {
		out, code := p.try("exec", name, "test", "-f", "/tmp/flow/ready")
		return code == 0, out
	})
	const records = 1_000
	var load []*kgo.Record
	for i := range records {
		load = append(load, &kgo.Record{Topic: "in", Partition: int32(i % 2), Value: fmt.Append(nil, i)})
	}
	if err := kafka.Produce(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, "all is committed", func() (bool, string) {
		committed, err := kafka.Committed(t.Context(), "cart.router.in")
		sum := int64(0)
		for _, offset := range committed {
			sum += offset
		}
		return sum == records, fmt.Sprint(committed, err)
	})

	if written, err := kafka.Read(t.Context(), "valid"); err != nil || len(written) != records {
		t.Errorf("%d records were written (%v)", len(written), err)
	}

	before := time.Now()
	p.run("exec", name, "sleep", "2")
	if took := time.Since(before); took < 2*time.Second {
		t.Errorf("sleep 2 took %v", took)
	}
	before = time.Now()
	p.run("stop", "--time", "30", name)
	t.Logf("the stop took %v", time.Since(before).Round(time.Millisecond))
	if state := p.run("inspect", "--format", "{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}", name); state != "exited 0 false" {
		t.Errorf("after SIGTERM the container is %q", state)
	}
	log := p.run("logs", name)
	if !strings.Contains(log, "msg=stopped exit=0") {
		t.Error("the sidecar did not stop in order")
	}
	t.Logf("from the first line of its log to ready: %v with the process's first answer, %v in all",
		between(t, log, "discovery: ", "ready=true"), between(t, log, "msg=starting", "ready=true"))
}

// between is the time from the last line with one text before the first with the other.
func between(t *testing.T, log, from, to string) time.Duration {
	t.Helper()
	var began time.Time
	for line := range strings.Lines(log) {
		stamp := regexp.MustCompile(`time=(\S+)`).FindStringSubmatch(line)
		if stamp == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339, stamp[1])
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, to) {
			return at.Sub(began)
		}
		if strings.Contains(line, from) {
			began = at
		}
	}
	t.Fatalf("the log has no line with %q", to)
	return 0
}

// authority is a chain as public ones are: a root that clients know, an intermediate that servers send, and a server's certificate.
type authority struct {
	rootPEM []byte
	pool    *x509.CertPool
	server  tls.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := func(serial int64, name string, isCA bool) *x509.Certificate {
		c := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			BasicConstraintsValid: true, IsCA: isCA}
		if isCA {
			c.KeyUsage = x509.KeyUsageCertSign
		} else {
			c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			c.DNSNames, c.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
		}
		return c
	}
	issue := func(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if by == nil {
			parent, by = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return certificate, key
	}
	root, rootKey := issue(template(1, "root of the suites", true), nil, nil)
	intermediate, intermediateKey := issue(template(2, "intermediate of the suites", true), root, rootKey)
	leaf, leafKey := issue(template(3, "localhost", false), intermediate, intermediateKey)
	a := &authority{rootPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}), pool: x509.NewCertPool(),
		server: tls.Certificate{Certificate: [][]byte{leaf.Raw, intermediate.Raw}, PrivateKey: leafKey}}
	a.pool.AddCert(root)
	return a
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}
