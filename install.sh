#!/bin/sh
# Builds mig-gpu-mon and installs it, after setting up what the build needs. It never asks, and may be run again.
set -eu

usage() {
	cat <<'END'
Usage: ./install.sh [--prefix DIR]
Builds mig-gpu-mon and installs it to DIR/bin, its man page to DIR/share/man.
DIR is /usr/local if root runs this or /usr/local/bin can be written, else
~/.local. Go, a C compiler, make and git are installed by apt-get, dnf or yum
where they are missing or too old, if this is root or sudo asks for nothing.
END
}

say() { echo "install.sh: $*"; }
die() {
	echo "install.sh: $*" >&2
	exit 1
}
refuse() {
	echo "install.sh: $*" >&2
	usage >&2
	exit 2
}

prefix=
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		usage
		exit 0
		;;
	--prefix=?*) prefix=${1#--prefix=} ;;
	--prefix)
		[ -n "${2-}" ] || refuse "--prefix takes a folder"
		prefix=$2
		shift
		;;
	*) refuse "unknown argument: $1" ;;
	esac
	shift
done
if [ -z "$prefix" ] && { [ "$(id -u)" = 0 ] || [ -w /usr/local/bin ]; }; then
	prefix=/usr/local
fi
prefix=${prefix:-${HOME:?is not set}/.local}
case $prefix in
/*) ;;
*) prefix=$PWD/$prefix ;;
esac
CDPATH='' cd -- "$(dirname -- "$0")"

need=$(sed -n 's/^go //p' go.mod)
minor=$(echo "$need" | cut -d. -f1,2)
user_path=$PATH

# at_least A B: version A is B or newer; an empty one is older than all.
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# find_go puts a Go that is new enough first in PATH. It may be there without being found: Debian has packages of
# one version beside PATH, and sudo hides go.dev's.
find_go() {
	too_old=
	for go in go "/usr/lib/go-$minor/bin/go" /usr/bin/go /usr/local/go/bin/go; do
		# Without "local", an older Go would answer for the newer one that it could fetch.
		version=$(GOTOOLCHAIN=local "$go" version 2>/dev/null | sed -n 's/^go version go\([0-9.]*\).*/\1/p')
		if at_least "$version" "$need"; then
			[ "$go" = go ] || PATH=${go%/go}:$PATH
			return 0
		fi
		too_old=${too_old:-$version}
	done
	return 1
}

# have_cc: a compiler alone does not do, cgo needs the headers of libc too.
have_cc() { echo '#include <stdlib.h>' | ${CC:-gcc} -x c -fsyntax-only - 2>/dev/null; }

# look says in $missing what is missing, and in $tools what of that any distribution has.
look() {
	missing='' tools=''
	find_go || missing="Go $need or newer${too_old:+ (found $too_old)}, "
	have_cc || tools="gcc "
	for tool in make git; do
		command -v "$tool" >/dev/null || tools="$tools$tool "
	done
	for tool in $tools; do
		missing="$missing$tool, "
	done
	missing=${missing%, }
}

# offered PACKAGE: the version that would be installed, as X.Y.
offered() {
	case $pm in
	apt-get) LC_ALL=C apt-cache policy "$1" | sed -n 's/^  Candidate: //p' ;;
	*) LC_ALL=C "$pm" -q info "$1" 2>/dev/null | sed -n 's/^Version *: *//p' | tail -n 1 ;;
	esac | sed 's/^[0-9]*://; s/^\([0-9]*\.[0-9]*\).*/\1/'
}

# set_up installs what is missing, or nothing if there is no Go that will do.
set_up() {
	for pm in apt-get dnf yum none; do
		command -v "$pm" >/dev/null && break
	done
	[ "$pm" != none ] || die "missing: $missing. Install it (Go from https://go.dev/dl/) and run this again"
	as_root=
	if [ "$(id -u)" != 0 ]; then
		as_root="sudo -n"
		sudo -n true 2>/dev/null || die "missing: $missing. Install it (Go from https://go.dev/dl/), or run this as root"
	fi
	say "missing: $missing; asking $pm"
	go_names=golang
	if [ "$pm" = apt-get ]; then
		go_names="golang-go golang-$minor-go"
		$as_root apt-get update -q || say "apt-get update failed; going on with the lists there are"
	fi
	packages=
	for tool in $tools; do
		case $pm-$tool in
		apt-get-gcc) packages="$packages gcc libc6-dev" ;;
		*-gcc) packages="$packages gcc glibc-devel" ;;
		*) packages="$packages $tool" ;;
		esac
	done
	if ! find_go; then
		for go in $go_names none; do
			at_least "$(offered "$go")" "$minor" && break
		done
		[ "$go" != none ] || die "missing: $missing, and $pm has no such Go. Get it from https://go.dev/dl/ and run this again"
		packages="$packages $go"
	fi
	# shellcheck disable=SC2086 # both are lists of words
	case $pm in
	apt-get) $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages ;;
	*) $as_root "$pm" install -y $packages ;;
	esac || die "$pm could not install$packages; nothing was built"
	look
	[ -z "$missing" ] || die "still missing: $missing. Install it (Go from https://go.dev/dl/) and run this again"
}

look
[ -z "$missing" ] || set_up

make build || die "the build failed; nothing was installed"
version=$(./mig-gpu-mon -version) || die "what was built does not run; nothing was installed"
make install PREFIX="$prefix" DESTDIR= || die "installing to $prefix failed"

say "$version is installed as $prefix/bin/mig-gpu-mon"
case :$user_path: in
*:"$prefix/bin":*)
	first=$(PATH=$user_path command -v mig-gpu-mon) || first=
	[ "$first" = "$prefix/bin/mig-gpu-mon" ] || say "but $first comes first in PATH"
	;;
*) say "$prefix/bin is not in PATH; add this line to ~/.profile: export PATH=\"$prefix/bin:\$PATH\"" ;;
esac
