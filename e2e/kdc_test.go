//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/thinkmorestupidless/ankka-flow-sidecar/testkit"
)

// suiteKDCs are for the end of the suites.
var suiteKDCs []*proc

// newKDC starts Debian's krb5kdc for a realm of its own, with keytabs of a broker and a client, and of a client whose key has changed since.
// A second one of the same realm, whose clock is an hour ahead, is for who is configured by ahead/krb5.conf.
func newKDC(dir string) error {
	ahead := filepath.Join(dir, "ahead")
	if err := os.Mkdir(ahead, 0o755); err != nil {
		return err
	}
	port, aheadPort := freePort(), freePort()
	env, err := configureKDC(dir, dir, port)
	if err != nil {
		return err
	}
	aheadEnv, err := configureKDC(ahead, dir, aheadPort)
	if err != nil {
		return err
	}
	script := `set -eu
kdb5_util create -s -r SUITES.EXAMPLE -P master-of-the-suites
for name in kafka/localhost client changed; do kadmin.local -q "addprinc -randkey $name"; done
kadmin.local -q "ktadd -k broker.keytab kafka/localhost"
kadmin.local -q "ktadd -k client.keytab client"
kadmin.local -q "ktadd -k changed.keytab changed"
kadmin.local -q "cpw -randkey changed"
`
	setup, err := start(dir, "kdc-setup", env, "", "bash", "-c", "cd "+dir+"\n"+script)
	if err != nil {
		return err
	}
	if <-setup.done; setup.err != nil {
		return fmt.Errorf("the KDC's database: %w\n%s", setup.err, setup.tail(20))
	}
	if err := startKDC(dir, "kdc", env, "krb5kdc -n"); err != nil {
		return err
	}
	return startKDC(ahead, "kdc-ahead", aheadEnv, "faketime -f +1h krb5kdc -n")
}

// configureKDC writes krb5.conf and kdc.conf to dir, for a KDC with the database of another directory, and returns the environment for both.
func configureKDC(dir, database string, port int) ([]string, error) {
	conf := fmt.Sprintf(`[libdefaults]
	default_realm = SUITES.EXAMPLE
	dns_lookup_kdc = false
	dns_lookup_realm = false
	rdns = false
	udp_preference_limit = 1
[realms]
	SUITES.EXAMPLE = {
		kdc = 127.0.0.1:%d
	}
[domain_realm]
	localhost = SUITES.EXAMPLE
`, port)
	kdc := strings.NewReplacer("PORT", fmt.Sprint(port), "DATABASE", database, "DIR", dir).Replace(`[kdcdefaults]
	kdc_listen = 127.0.0.1:PORT
	kdc_tcp_listen = 127.0.0.1:PORT
[realms]
	SUITES.EXAMPLE = {
		database_name = DATABASE/principal
		key_stash_file = DATABASE/stash
		acl_file = DATABASE/kadm5.acl
		default_principal_flags = +preauth
	}
[logging]
	kdc = FILE:DIR/kdc.trace
`)
	for file, text := range map[string]string{"krb5.conf": conf, "kdc.conf": kdc} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return []string{"KRB5_CONFIG=" + filepath.Join(dir, "krb5.conf"), "KRB5_KDC_PROFILE=" + filepath.Join(dir, "kdc.conf"), "PATH=" + os.Getenv("PATH") + ":/usr/sbin"}, nil
}

func startKDC(dir, name string, env []string, command string) error {
	kdc, err := start(dir, name, env, "", "bash", "-c", "exec "+command)
	if err != nil {
		return err
	}
	suiteKDCs = append(suiteKDCs, kdc)
	return testkit.Poll(30*time.Second, "the KDC starts", func() (bool, string) {
		trace, _ := os.ReadFile(filepath.Join(dir, "kdc.trace"))
		return strings.Contains(string(trace), "commencing operation"), kdc.tail(5)
	})
}

func krb5JAAS(keytab, principal string) string {
	return fmt.Sprintf(`com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="%s" principal="%s@SUITES.EXAMPLE";`, keytab, principal)
}
