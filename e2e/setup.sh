#!/usr/bin/env bash
# setup.sh: what the end-to-end suites need beside Go, fetched once and kept: the jars of Apache Kafka (by Maven, from Maven Central),
# a Python environment with the published ankka-flow package (by pip), and what the example in JavaScript imports (by npm). It prints
# where the first two are, as NAME=PATH lines.
#
#   KAFKA_LIBS      where the jars are kept      (~/.cache/kafka-4.3.1)
#   FLOW_E2E_VENV   where the environment is kept (~/.cache/ankka-flow-e2e/venv)
#   FLOW_E2E_PYTHON a Python of 3.12 or later; without it one is looked for on PATH and under ~/.pyenv/versions
#
# It needs a JDK of 17 or later, Maven, such a Python, and npm, and says so when one is missing.
set -euo pipefail
kafka=4.3.1 flow=0.5.0 confluent=2.16.1
libs=${KAFKA_LIBS:-$HOME/.cache/kafka-$kafka}
venv=${FLOW_E2E_VENV:-$HOME/.cache/ankka-flow-e2e/venv}

die() {
	echo "e2e/setup.sh: $*" >&2
	exit 1
}

# Two suites that start at once must not both fetch.
mkdir -p "$libs" "$(dirname "$venv")"
if command -v flock >/dev/null; then
	exec 9>"$venv.lock"
	flock 9
fi

# A major version of Java, from a line like: openjdk version "17.0.15" 2025-04-15
command -v java >/dev/null && command -v javac >/dev/null || die "no java and javac on PATH; install a JDK of 17 or later"
java=$(java -version 2>&1 | sed -n '1s/[^"]*"\([0-9]*\).*/\1/p')
[ "${java:-0}" -ge 17 ] || die "java on PATH is version ${java:-unknown}; Kafka $kafka needs 17 or later"

if [ ! -f "$libs/.complete-$kafka" ]; then
	command -v mvn >/dev/null || die "no mvn on PATH, which fetches Kafka's jars; install Maven"
	pom=$(mktemp -d)
	trap 'rm -rf "$pom"' EXIT
	cat >"$pom/pom.xml" <<X
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>e2e</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$kafka</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$kafka</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
X
	mvn -q -B -f "$pom/pom.xml" dependency:copy-dependencies -DoutputDirectory="$(realpath "$libs")" >&2
	touch "$libs/.complete-$kafka"
fi

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; }

if ! "$venv/bin/python" -c "import importlib.metadata as m; assert m.version('ankka-flow') == '$flow'" 2>/dev/null; then
	python=
	for candidate in ${FLOW_E2E_PYTHON:+"$FLOW_E2E_PYTHON"} python3.14 python3.13 python3.12 python3 "$HOME"/.pyenv/versions/3.*/bin/python; do
		if new_enough "$candidate"; then
			python=$candidate
			break
		fi
	done
	[ -n "$python" ] || die "no Python of 3.12 or later on PATH or under ~/.pyenv/versions, which ankka-flow $flow needs; install one or set FLOW_E2E_PYTHON"
	rm -rf "$venv"
	"$python" -m venv "$venv" >&2
	"$venv/bin/pip" install --quiet "ankka-flow==$flow" >&2
fi

# bench/ compares with what a user would write without a streamlet.
if ! "$venv/bin/python" -c "import importlib.metadata as m; assert m.version('confluent-kafka') == '$confluent'" 2>/dev/null; then
	"$venv/bin/pip" install --quiet --only-binary :all: "confluent-kafka==$confluent" >&2
fi

# What the example in JavaScript needs is where anybody would install it.
node=$(realpath "$(dirname "$0")/../examples/node")
if ! [ "$node/node_modules/.package-lock.json" -nt "$node/package-lock.json" ]; then
	command -v npm >/dev/null || die "no npm on PATH, which fetches what the example in JavaScript needs; install Node 20 or later with npm"
	(cd "$node" && npm ci --silent --no-audit --no-fund >&2)
fi

echo "KAFKA_LIBS=$libs"
echo "PYTHON=$venv/bin/python"
