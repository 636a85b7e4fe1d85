package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	providerPackage = "org.apache.kafka.common.config.provider."
	providersName   = "config.providers"
)

// provided is a reference as Kafka's ConfigTransformer has it: ${provider:key} or ${provider:path:key}.
var provided = regexp.MustCompile(`\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}`)

// provider looks up one key. An error ends the sentence "… cannot be resolved: ".
type provider func(path, key string) (string, error)

// resolve puts what config.providers provide in the place of references in the values of all other properties, so that a
// password can live in a mounted Secret. Other than Java, which then uses the reference itself as the value, a key that is
// not there is a problem.
func (d *portProperties) resolve() {
	providers := d.providers()
	if len(providers) == 0 {
		return
	}
	for _, name := range d.names {
		if name == providersName || strings.HasPrefix(name, providersName+".") {
			continue
		}
		given := d.given[name]
		given.value = provided.ReplaceAllStringFunc(given.value, func(reference string) string {
			parts := provided.FindStringSubmatch(reference)
			look, ok := providers[parts[1]]
			if !ok {
				return reference
			}
			given.resolved = true
			value, err := look(parts[2], parts[3])
			if err != nil {
				d.failed[name] = true
				d.problem(given, "%s cannot be resolved: %v", quote(reference), err)
			}
			return value
		})
		d.given[name] = given
	}
}

// providers are those that config.providers names, by name.
func (d *portProperties) providers() map[string]provider {
	known := map[string]func(param func(string) string) (provider, error){
		providerPackage + "FileConfigProvider":      d.fileProvider,
		providerPackage + "DirectoryConfigProvider": d.directoryProvider,
		providerPackage + "EnvVarConfigProvider":    d.envProvider,
	}
	providers := map[string]provider{}
	for _, name := range splitList(d.given[providersName].value) {
		prefix := providersName + "." + name + "."
		class := d.given[prefix+"class"]
		make := known[d.text(prefix+"class")]
		switch {
		case class.name == "":
			d.problem(d.given[providersName], "%sclass is missing, which says what provider %s is: %sFileConfigProvider, …DirectoryConfigProvider or …EnvVarConfigProvider", prefix, quote(name), providerPackage)
			continue
		case make == nil:
			d.problem(class, "it is %s, but must be %sFileConfigProvider, …DirectoryConfigProvider or …EnvVarConfigProvider; a class of your own cannot run here", quote(class.value), providerPackage)
			continue
		}
		p, err := make(func(param string) string { return d.text(prefix + "param." + param) })
		if err != nil {
			d.problem(d.given[prefix+"param.allowlist.pattern"], "%v", err)
			continue
		}
		providers[name] = p
	}
	return providers
}

// fileProvider reads keys of Java properties files.
func (d *portProperties) fileProvider(param func(string) string) (provider, error) {
	allowed := splitList(param("allowed.paths"))
	return func(path, key string) (string, error) {
		content, err := d.providedFile(path, allowed)
		if err != nil {
			return "", err
		}
		value, ok := parseJavaProperties(string(content))[key]
		if !ok {
			return "", fmt.Errorf("the file has no key %s", quote(key))
		}
		return value, nil
	}, nil
}

// directoryProvider reads files of a directory, whose names are the keys: a mounted Secret.
func (d *portProperties) directoryProvider(param func(string) string) (provider, error) {
	allowed := splitList(param("allowed.paths"))
	return func(path, key string) (string, error) {
		if strings.ContainsRune(key, filepath.Separator) || key == ".." || key == "." {
			return "", fmt.Errorf("the key must be the name of a file in the directory")
		}
		content, err := d.providedFile(filepath.Join(path, key), allowed)
		return string(content), err
	}, nil
}

func (d *portProperties) providedFile(path string, allowed []string) ([]byte, error) {
	clean := filepath.Clean(path)
	inside := func(dir string) bool {
		dir = filepath.Clean(dir)
		return clean == dir || strings.HasPrefix(clean, strings.TrimSuffix(dir, "/")+"/")
	}
	if len(allowed) > 0 && !slices.ContainsFunc(allowed, inside) {
		return nil, fmt.Errorf("%s is in none of the provider's allowed.paths", quote(path))
	}
	return (&store{location: path, readFile: d.outside.readFile}).content()
}

// envProvider reads environment variables.
func (d *portProperties) envProvider(param func(string) string) (provider, error) {
	allowed, err := regexp.Compile(`^(?:` + param("allowlist.pattern") + `)$`)
	if err != nil {
		return nil, fmt.Errorf("it is no regular expression: %w", err)
	}
	return func(path, key string) (string, error) {
		if param("allowlist.pattern") != "" && !allowed.MatchString(key) {
			return "", fmt.Errorf("the provider's allowlist.pattern does not allow it")
		}
		value, ok := d.outside.lookupEnv(key)
		if !ok || path != "" {
			return "", fmt.Errorf("there is no environment variable %s", quote(key))
		}
		return value, nil
	}, nil
}

// parseJavaProperties reads what java.util.Properties.load does: a key and a value a line, '=' or ':' or blanks between
// them, '#' and '!' for comments, a backslash for escapes and at the end of a line that goes on.
func parseJavaProperties(text string) map[string]string {
	properties := map[string]string{}
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	var logical string
	going := false // the line before ended with a backslash
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimLeft(line, " \t\f")
		if !going && (line == "" || line[0] == '#' || line[0] == '!') {
			continue
		}
		body := strings.TrimRight(line, `\`)
		if (len(line)-len(body))%2 == 1 {
			logical, going = logical+line[:len(line)-1], true
			continue
		}
		key, value := splitJavaProperty(logical + line)
		properties[key] = value
		logical, going = "", false
	}
	if going {
		key, value := splitJavaProperty(logical)
		properties[key] = value
	}
	return properties
}

func splitJavaProperty(line string) (key, value string) {
	end := 0
	for end < len(line) && !strings.ContainsRune("=: \t\f", rune(line[end])) {
		if line[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(line))
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	return unescapeJavaProperty(line[:end]), unescapeJavaProperty(rest)
}

func unescapeJavaProperty(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch c := text[i]; c {
		case 't', 'n', 'r', 'f':
			b.WriteByte("\t\n\r\f"[strings.IndexByte("tnrf", c)])
		case 'u':
			if i+4 < len(text) {
				if code, err := strconv.ParseUint(text[i+1:i+5], 16, 16); err == nil {
					b.WriteRune(rune(code))
					i += 4
				}
			}
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
