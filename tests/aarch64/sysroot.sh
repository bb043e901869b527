#!/usr/bin/env bash
# Unpacks the arm64 packages that a build for AArch64 links into DIR: sysroot.sh DIR
# Needs apt-get and dpkg, no root; nothing is installed. Packages are of this system's release, so that they suit its
# g++-aarch64-linux-gnu. About 600 MB.
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd) makefile=$(cd "$(dirname "$0")/../.." && pwd)/Makefile
apt=$(mktemp -d)
trap 'rm -rf "$apt"' EXIT
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
touch "$apt/status"  # an empty list of installed packages, so that apt-get fetches all dependencies
get() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Install-Recommends=false -o Debug::NoLocking=1 \
    -o Dir::State::status="$apt/status" -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" "$@" >/dev/null
}
get update
# The libraries among the packages of `make deps`.
get --yes --download-only install $(sed -n '/^\(TEST_\)\?PACKAGES/,/[^\\]$/p' "$makefile" | grep -oE '[a-z0-9.-]+-dev')
for package in "$apt"/cache/archives/*.deb; do
  case ${package##*/} in gcc-1* | g++* | cpp-* | gfortran* | *binutils* | *perl* | openssh-* | libicu-dev*) continue ;; esac
  dpkg -x "$package" "$dir"
done
find "$dir" -type l -lname '/*' | while read -r link; do ln -sfnr "$dir$(readlink "$link")" "$link"; done
echo "$dir: the libraries of $(ls "$apt"/cache/archives/*.deb | wc -l) packages"
