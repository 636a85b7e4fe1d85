#!/usr/bin/env bash
# build.sh DIR CA.PEM: builds the Dockerfile's image for amd64 and arm64 without a container engine and without a registry of
# images, as localhost/sidecar:amd64 and localhost/sidecar:arm64 in a storage in DIR, which DIR/storage.conf describes. Needs
# root on Debian.
#
# The base images are made here, under the names that the Dockerfile has: the commands are those of Debian's busybox-static, the
# toolchain is this machine's, and its certificates are this machine's and CA.PEM, as if that authority were a public one.
set -euo pipefail
dir=$(realpath "$1") ca=$(realpath "$2")
cd "$(dirname "$0")/../.."

missing=()
for package in buildah podman runc busybox-static ca-certificates; do
	dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

export CONTAINERS_STORAGE_CONF=$dir/storage.conf
printf '[storage]\ndriver = "overlay"\ngraphroot = "%s"\nrunroot = "%s"\n' "$dir/store" "$dir/run" >"$CONTAINERS_STORAGE_CONF"

# busybox ARCH FILE: the base image of the commands.
busybox() {
	mkdir -p "$dir/busybox-$1/bin"
	cp "$2" "$dir/busybox-$1/bin/busybox"
	tar -C "$dir/busybox-$1" -c . | podman import -q --os linux --arch "$1" - localhost/busybox:1.37-musl >/dev/null
}

# package ARCH: Debian's package of another architecture, unpacked, with lists of its own so that this machine's stay as they are.
package() {
	mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
	local apt=(apt-get -qq -o "APT::Architecture=$1" -o "APT::Architectures=$1" -o "Dir::State::lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt/cache" -o APT::Sandbox::User=root)
	"${apt[@]}" update
	(cd "$dir/apt" && "${apt[@]}" download busybox-static && dpkg-deb -x busybox-static_*"_$1.deb" "$1")
}

# The toolchain's image: Go, a shell with the usual commands, and certificates.
root=$dir/golang
mkdir -p "$root"/{bin,etc/ssl/certs,root,tmp,usr/local}
cp /bin/busybox "$root/bin/"
for command in $(/bin/busybox --list); do [ "$command" = busybox ] || ln -s busybox "$root/bin/$command"; done
cat /etc/ssl/certs/ca-certificates.crt "$ca" >"$root/etc/ssl/certs/ca-certificates.crt"
goroot=$(go env GOROOT)
tar -c -C "$root" . --transform "s,^${goroot#/},usr/local/go," -C / "${goroot#/}" |
	podman import -q -c 'ENV PATH=/usr/local/go/bin:/bin' -c 'ENV GOTOOLCHAIN=local' -c 'ENV GOPATH=/go' \
		-c 'ENV GOCACHE=/cache' -c 'ENV GOPROXY=off' -c 'ENV GOFLAGS=-mod=mod' - localhost/golang:1.26 >/dev/null

# The modules are fetched here, and the build is not to fetch more.
go mod download
here=$(go env GOARCH)
image() {
	buildah bud -q --isolation chroot --pull-never --platform "linux/$1" --build-arg "BUILDPLATFORM=linux/$here" --build-arg VERSION=image-test --build-arg COMMIT=c0ffee \
		--volume "$(go env GOMODCACHE):/go/pkg/mod" --volume "$(go env GOCACHE):/cache" \
		-t "localhost/sidecar:$1" . >/dev/null
}
for arch in amd64 arm64; do
	if [ "$arch" = "$here" ]; then
		busybox "$arch" /bin/busybox
	else
		package "$arch"
		busybox "$arch" "$dir/apt/$arch/bin/busybox"
	fi
	image "$arch"
done
