package main

import (
	"io/fs"
	"maps"
	"strings"
	"testing"
)

// withFiles is an outside with these files and variables.
func withFiles(files, env map[string]string) outside {
	return outside{
		readFile: func(name string) ([]byte, error) {
			if content, ok := files[name]; ok {
				return []byte(content), nil
			}
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		},
		lookupEnv: func(name string) (string, bool) { value, ok := env[name]; return value, ok },
	}
}

const providerClass = "config.providers.p.class=" + providerPackage

func TestAProviderGivesAValueOrAProblemThatNamesTheReferenceAndNotTheValue(t *testing.T) {
	outside := withFiles(map[string]string{"/mnt/a.properties": "size=7\npass word=x\npath=C:\\\\x\nbad=hunter2\n", "/mnt/dir/size": "8\n", "/etc/size": "9"}, map[string]string{"SIZE": "10", "OTHER": "11"})
	for _, test := range []struct {
		class, value, param string
		want                int32
		problem             string
	}{
		{"FileConfigProvider", "${p:/mnt/a.properties:size}", "", 7, ""},
		{"FileConfigProvider", "1${p:/mnt/a.properties:size}0${p:/mnt/a.properties:size}", "", 1707, ""},
		{"FileConfigProvider", "${p:/mnt/a.properties:none}", "", 0, "'${p:/mnt/a.properties:none}' cannot be resolved: the file has no key 'none'"},
		{"FileConfigProvider", "${p:/mnt/b.properties:size}", "", 0, "'${p:/mnt/b.properties:size}' cannot be resolved: there is no file '/mnt/b.properties'"},
		{"FileConfigProvider", "${p:/mnt/a.properties:bad}", "", 0, "it is a value not shown here, but must be a whole number"},
		{"FileConfigProvider", "${p:/mnt/a.properties:size}", "allowed.paths=/etc,/mnt/", 7, ""},
		{"FileConfigProvider", "${p:/mnt/../mnt/a.properties:size}", "allowed.paths=/etc", 0, "'${p:/mnt/../mnt/a.properties:size}' cannot be resolved: '/mnt/../mnt/a.properties' is in none of"},
		{"FileConfigProvider", "${p:/mnt/dir/../a.properties:size}", "allowed.paths=/mnt/dir", 0, "'${p:/mnt/dir/../a.properties:size}' cannot be resolved: '/mnt/dir/../a.properties' is in none of"},
		{"DirectoryConfigProvider", "${p:/mnt/dir:size}", "", 8, ""},
		{"DirectoryConfigProvider", "${p:/mnt/dir:../../etc/size}", "", 0, "'${p:/mnt/dir:../../etc/size}' cannot be resolved: the key must be the name of a file"},
		{"EnvVarConfigProvider", "${p:SIZE}", "", 10, ""},
		{"EnvVarConfigProvider", "${p:NONE}", "", 0, "'${p:NONE}' cannot be resolved: there is no environment variable 'NONE'"},
		{"EnvVarConfigProvider", "${p:OTHER}", "allowlist.pattern=SIZE|X.*", 0, "'${p:OTHER}' cannot be resolved: the provider's allowlist.pattern does not allow it"},
	} {
		lines := []string{"fetch.max.bytes=" + test.value, "config.providers=p", providerClass + test.class}
		if test.param != "" {
			lines = append(lines, "config.providers.p.param."+test.param)
		}
		settings, warnings, problems := consumerSettings("in", outside, layer(lines...))
		if len(warnings) > 0 {
			t.Errorf("%s: warnings %q", test.value, warnings)
		}
		if test.problem == "" {
			if len(problems) > 0 || settings.FetchMaxBytes != test.want {
				t.Errorf("%s is %d, %q", test.value, settings.FetchMaxBytes, problems)
			}
			continue
		}
		wantPrefixes(t, problems, []string{"streamlet.conf:1:1: inlet 'in': 'fetch.max.bytes': " + test.problem})
		if strings.Contains(strings.Join(problems, ""), "hunter2") {
			t.Errorf("told %q", problems)
		}
	}
}

func TestAProviderWithoutAKnownClassIsAProblem(t *testing.T) {
	_, problems := judge(consumers, "config.providers=p")
	wantPrefixes(t, problems, []string{"streamlet.conf:1:1: inlet 'in': 'config.providers': config.providers.p.class is missing"})
	_, problems = judge(consumers, providerClass+"VaultConfigProvider", "config.providers=p")
	wantPrefixes(t, problems, []string{"streamlet.conf:1:1: inlet 'in': 'config.providers.p.class': it is 'org.apache.kafka.common.config.provider.VaultConfigProvider', but must be"})
}

func TestAPropertiesFileMeansWhatItMeansInJava(t *testing.T) {
	got := parseJavaProperties("# comment\n! too\n a = b \nc:d\ne f\ng\nh\\ i = j\\tk\\u00e9\\q\nl = m\\\n   n\r\no==p\n\nq=\\\\\nr = s\\")
	want := map[string]string{"a": "b ", "c": "d", "e": "f", "g": "", "h i": "j\tkéq", "l": "mn", "o": "=p", "q": `\`, "r": "s"}
	if !maps.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
