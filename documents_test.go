package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are the repository's, by path, with slashes.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*.md", "deploy/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[filepath.ToSlash(name)] = string(text)
		}
	}
	if len(texts) < 10 {
		t.Fatalf("only %d documents were found", len(texts))
	}
	return texts
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchors are the names by which a document's headings are linked to.
func anchors(text string) (names []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		names = append(names, strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-"))
	}
	return names
}

func TestEveryLinkOfADocumentLeadsSomewhere(t *testing.T) {
	texts := documents(t)
	links := 0
	for name, text := range texts {
		for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s is not there", name, m[1])
			} else if anchor != "" && !slices.Contains(anchors(texts[target]), anchor) {
				t.Errorf("%s: %s has no heading %q", name, target, anchor)
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links were found", links)
	}
}

// elsewhere are paths that are no files of the repository: of the image, of the reader's own directory, of annotations.
var elsewhere = regexp.MustCompile(`^(/|\./flow|flow/|~|\$|docs/operations\.md#|prometheus\.io/|ankka/flow/v1)`)

func TestEveryFileThatADocumentNamesIsThere(t *testing.T) {
	known := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git") {
			return fs.SkipDir
		}
		known[filepath.ToSlash(path)] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	isFile := func(name string) bool { return known[strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")] }
	found := 0
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
			file := m[1]
			extension := regexp.MustCompile(`^[\w./-]+\.(go|md|json|conf|yml|yaml|sh|proto|py|js)$`).MatchString(file)
			first, _, inDirectory := strings.Cut(strings.TrimPrefix(file, "./"), "/")
			inDirectory = inDirectory && known[first] && !strings.ContainsAny(file, " <>*…")
			if !extension && !inDirectory || elsewhere.MatchString(file) || slices.Contains([]string{descriptorFile, streamletFile}, file) {
				continue
			}
			found++
			if !isFile(file) && !isFile(filepath.ToSlash(filepath.Join(filepath.Dir(name), file))) {
				t.Errorf("%s names %s, which is not there", name, file)
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d files are named", found)
	}
}

// notTheSidecars are variables that documents name and something else reads.
var notTheSidecars = []string{"FLOW_PROCESS_PORT", "FLOW_STREAMLET", "FLOW_SIDECAR_IMAGE"}

func TestEveryVariableThatADocumentNamesIsRead(t *testing.T) {
	known := slices.Clone(notTheSidecars)
	for _, v := range variables() {
		known = append(known, v.name)
	}
	named := map[string]bool{}
	for name, text := range documents(t) {
		for _, variable := range regexp.MustCompile(`\bFLOW_[A-Z_]+\b`).FindAllString(text, -1) {
			named[variable] = true
			if !slices.Contains(known, variable) {
				t.Errorf("%s names %s, which nothing reads", name, variable)
			}
		}
		for _, argument := range regexp.MustCompile(`-D(flow\.[a-z.]+)=`).FindAllStringSubmatch(text, -1) {
			if !slices.ContainsFunc(variables(), func(v variable) bool { return v.argument() == argument[1] }) {
				t.Errorf("%s names the argument %s, which nothing reads", name, argument[1])
			}
		}
	}
	for _, v := range variables() {
		if !named[v.name] && strings.HasPrefix(v.name, "FLOW_") {
			t.Errorf("no document names %s", v.name)
		}
	}
}

// testNames are the names of all tests, benchmarks and fuzz tests, and flags those that test files define.
func testNames(t *testing.T) (tests, flags []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil {
				tests = append(tests, f.Name.Name)
			}
		}
		source, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`flag\.\w+\("([\w.]+)"`).FindAllStringSubmatch(string(source), -1) {
			flags = append(flags, m[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests, flags
}

// commandLines are the lines of a document's indented and fenced code that are commands of a shell, without comments.
func commandLines(text string) (lines []string) {
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		line, _, _ = strings.Cut(line, "  #")
		if regexp.MustCompile(`^([A-Z_]+=\S+ )*(go (run|test|build|generate|tool|vet)|\./|\.ci/|e2e/|deploy/|docker compose|kubectl (apply|kustomize)|promtool|python|node|npm) ?`).MatchString(line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// goFlags are flags of the go command and of its tests.
var goFlags = []string{"race", "run", "tags", "v", "skip", "timeout", "count", "bench", "benchtime", "fuzz", "fuzztime", "o", "trimpath", "ldflags", "u", "e"}

func TestEveryCommandOfADocumentNamesWhatIsThere(t *testing.T) {
	tests, flags := testNames(t)
	count := 0
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile("`(go (?:test|run|generate|build) [^`]+|\\.ci/run|e2e/setup\\.sh)`").FindAllStringSubmatch(text, -1) {
			text += "\n" + m[1]
		}
		for _, line := range commandLines(text) {
			count++
			if err := checkCommand(line, tests, flags); err != nil {
				t.Errorf("%s: %s: %v", name, line, err)
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d commands were found", count)
	}
}

// checkCommand looks for what a command names: files, directories, tests and flags.
func checkCommand(line string, tests, flags []string) error {
	words := strings.Fields(line)
	demo := strings.Contains(line, "go run ./demo")
	for i, word := range words {
		word = strings.Trim(word, `'",`)
		if flag, isFlag := strings.CutPrefix(word, "-"); isFlag && words[0] == "go" && !demo {
			flag, _, _ = strings.Cut(flag, "=")
			if !slices.Contains(goFlags, flag) && !slices.Contains(flags, flag) {
				return fmt.Errorf("there is no flag -%s", flag)
			}
			if flag == "run" || flag == "fuzz" || flag == "bench" {
				pattern, err := regexp.Compile(strings.Trim(words[i+1], `'"`))
				if err != nil {
					return err
				}
				if pattern.String() != "^$" && !slices.ContainsFunc(tests, pattern.MatchString) {
					return fmt.Errorf("there is no test %s", pattern)
				}
			}
			continue
		}
		for _, prefix := range []string{"./", ".ci/", "e2e/", "deploy/", "docs/", "examples/"} {
			if !strings.HasPrefix(word, prefix) || strings.HasPrefix(word, "./flow") || word == "./..." || word == "./ankka-flow-sidecar" {
				continue
			}
			if _, err := os.Stat(strings.TrimSuffix(word, "/...")); errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s is not there", word)
			}
		}
	}
	return nil
}

// tableRows are the cells of the rows of the first table after a text, without its head.
func tableRows(t *testing.T, text, after string) (rows [][]string) {
	t.Helper()
	_, rest, found := strings.Cut(text, after)
	if !found {
		t.Fatalf("there is no %q", after)
	}
	for line := range strings.Lines(rest) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") {
			if rows != nil {
				break
			}
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("after %q there is no table", after)
	}
	return rows[2:]
}

const configurationDocument = "docs/configuration.md"

func TestTheDocumentOfTheConfigurationHasEveryVariableAsItIsRead(t *testing.T) {
	text, err := os.ReadFile(configurationDocument)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, v := range variables() {
		must := "any text"
		if err := v.set(&Config{}, "\x00 nothing"); err != nil {
			must = err.Error()
		}
		byDefault := "none"
		if v.byDefault != "" {
			byDefault = "`" + v.byDefault + "`"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", v.name, byDefault, v.meaning, must)
	}
	head := "| variable | default | meaning | must be |\n|---|---|---|---|\n"
	before, rest, found := strings.Cut(string(text), head)
	table, after, ended := strings.Cut(rest, "\n\n")
	if rest, isEmpty := strings.CutPrefix(rest, "\n"); isEmpty {
		table, after = "", rest
	}
	if !found || !ended {
		t.Fatalf("%s has no table of variables", configurationDocument)
	}
	if *writeDocument {
		if err := os.WriteFile(configurationDocument, []byte(before+head+want.String()+"\n"+strings.TrimLeft(after, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table+"\n" != want.String() {
		t.Errorf("%s is not what the table in the code says: go test -run TheDocumentOfTheConfiguration -document .", configurationDocument)
	}
}

func TestTheDocumentOfTheConfigurationHasEveryKeyWithItsDefault(t *testing.T) {
	text, err := os.ReadFile(configurationDocument)
	if err != nil {
		t.Fatal(err)
	}
	least := string(text)[strings.Index(string(text), "    flow {\n"):]
	least, _, _ = strings.Cut(least, "\n\n")
	cfg, warnings, problems := readConfig(nil, func(string) (string, bool) { return "", false }, func(name string) ([]byte, error) {
		if filepath.Base(name) == streamletFile {
			return []byte(least), nil
		}
		return os.ReadFile("deploy/compose/flow/descriptor.json")
	})
	if len(problems)+len(warnings) > 0 {
		t.Fatalf("the least streamlet.conf: %q %q", problems, warnings)
	}
	inlet, outlet := cfg.Inlets[0], cfg.Outlets[len(cfg.Outlets)-1]
	defaults := map[string]string{
		"group": inlet.Group, "client-id": inlet.ClientID, "batch.max-records": fmt.Sprint(inlet.BatchMaxRecords), "batch.max-bytes": fmt.Sprint(inlet.BatchMaxBytes),
	}
	compare := func(after string, keys []string, prefix string, defaults map[string]string) {
		var documented []string
		for _, row := range tableRows(t, string(text), after) {
			key := strings.TrimPrefix(strings.Trim(row[0], "`"), prefix)
			documented = append(documented, key)
			shown := strings.Trim(row[1], "`")
			if size, err := parseByteSize(shown); err == nil && strings.HasSuffix(key, "bytes") {
				shown = fmt.Sprint(size)
			}
			if want, has := defaults[key]; has && shown != want {
				t.Errorf("%s%s: the default is %s, not %s", prefix, key, want, shown)
			} else if !has && shown != "required" && shown != "{}" {
				t.Errorf("%s%s: what has the default %s?", prefix, key, shown)
			}
		}
		if slices.Sort(documented); !slices.Equal(documented, slices.Sorted(slices.Values(keys))) {
			t.Errorf("documented are %q, read are %q", documented, keys)
		}
	}
	compare("A name that nothing reads is a warning", slices.Concat(flowValues(), flowSections()), "flow.", nil)
	compare("Of an inlet:", slices.Concat(inletValues(), inletSections()), "", defaults)
	compare("Of an outlet:", slices.Concat(outletValues(), outletSections()), "", map[string]string{"client-id": outlet.ClientID})
}

// TestTheConfigurationsToStartFromHaveNoProblem reads the files that one copies.
func TestTheConfigurationsToStartFromHaveNoProblem(t *testing.T) {
	checked := false
	for dir, deployed := range map[string]string{"deploy/compose/flow": "deploy/compose/compose.yaml", "deploy/kubernetes/base/flow": "deploy/kubernetes/base/kustomization.yaml"} {
		cfg, warnings, problems := readConfig([]string{"-Dflow.config.dir=" + dir}, func(string) (string, bool) { return "", false }, os.ReadFile)
		if len(problems)+len(warnings) > 0 {
			t.Errorf("%s: %q %q", dir, problems, warnings)
			continue
		}
		if len(cfg.Inlets) != 1 || len(cfg.Outlets) != 2 {
			t.Errorf("%s has %d inlets and %d outlets", dir, len(cfg.Inlets), len(cfg.Outlets))
		}
		text, err := os.ReadFile(deployed)
		if err != nil {
			t.Fatal(err)
		}
		made := regexp.MustCompile(`for topic in (.+); do`).FindStringSubmatch(string(text))
		if made == nil {
			continue
		}
		for _, topic := range []string{cfg.Inlets[0].Topic, cfg.Outlets[0].Topic, cfg.Outlets[1].Topic} {
			if !slices.Contains(strings.Fields(made[1]), topic) {
				t.Errorf("%s names topic %s, which %s does not make", dir, topic, deployed)
			}
		}
		if listener := "PLAINTEXT://" + cfg.Inlets[0].BootstrapServers[0]; !strings.Contains(string(text), listener) {
			t.Errorf("%s names a broker at %s, which %s does not have", dir, listener, deployed)
		}
		checked = true
	}
	if !checked {
		t.Error("the compose file makes no topics")
	}
}

func TestTheArchitectureNamesEveryFileAndEveryDependency(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	for _, m := range regexp.MustCompile("`([\\w*]+\\.go)`").FindAllStringSubmatch(string(text), -1) {
		patterns = append(patterns, m[1])
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		named := strings.HasSuffix(file, "_test.go")
		for _, pattern := range patterns {
			matched, _ := filepath.Match(pattern, file)
			named = named || matched
		}
		if !named {
			t.Errorf("ARCHITECTURE.md does not say what %s is for", file)
		}
	}
	modules, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(modules), -1) {
		parts := strings.Split(regexp.MustCompile(`/v\d+$`).ReplaceAllString(m[1], ""), "/")
		name := parts[len(parts)-1]
		if !regexp.MustCompile("`[^`\n]*\\b" + regexp.QuoteMeta(name) + "\\b[^`\n]*`").Match(text) {
			t.Errorf("ARCHITECTURE.md does not say why %s is there", m[1])
		}
	}
}

func TestTheDeploymentHasTheProbesThatTheOperatorRenders(t *testing.T) {
	text, err := os.ReadFile("deploy/kubernetes/base/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for what, lines := range map[string]string{
		"readiness": "readinessProbe:\nexec: { command: [test, -f, /tmp/flow/ready] }\nperiodSeconds: 5\n",
		"liveness": "livenessProbe:\nexec: { command: [sh, -c, \"test $(( $(date +%s) - $(stat -c %Y /tmp/flow/alive) )) -lt 15\"] }\n" +
			"initialDelaySeconds: 20\nperiodSeconds: 10\n",
		"pre-stop": "preStop: { exec: { command: [sleep, \"2\"] } }\n",
	} {
		if flat := regexp.MustCompile(`(?m)^ +`).ReplaceAllString(string(text), ""); !strings.Contains(flat, lines) {
			t.Errorf("the %s probe or hook is not the operator's", what)
		}
	}
}

func TestTheDocumentOfTheProtocolHasTheLimitsOfTheCode(t *testing.T) {
	text, err := os.ReadFile("docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{maxMessageBytes, maxRecordBytes} {
		if shown := fmt.Sprintf("%d,%03d,%03d", limit/1e6, limit/1000%1000, limit%1000); !strings.Contains(string(text), shown) {
			t.Errorf("docs/protocol.md does not tell the limit of %s bytes", shown)
		}
	}
	for what, version := range map[string]string{"docs/protocol.md": "`ankka.flow.v1`, version " + protocolVersion, "deploy/compose/flow/descriptor.json": `"protocol_version": "` + protocolVersion + `"`} {
		if text, err := os.ReadFile(what); err != nil || !strings.Contains(string(text), version) {
			t.Errorf("%s does not say %q (%v)", what, version, err)
		}
	}
}
