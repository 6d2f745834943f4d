#!/bin/sh
# Install kcpctl for the current user, without sudo:
#
#   install.sh [--version v0.1.0] [--dir DIRECTORY]
#
# It downloads the archive of a release, by default of the newest one, verifies its checksum, and copies the programs to
# a directory, by default ~/.local/bin. KCPCTL_RELEASES is a mirror of https://github.com/kcpctl/kcpctl/releases.
set -eu

fail() {
	echo "install.sh: $1" >&2
	exit 1
}

usage() {
	echo "usage: install.sh [--version v0.1.0] [--dir DIRECTORY]" >&2
	exit 2
}

# machine sets the system and the architecture as archives name them.
machine() {
	case $(uname -s) in
	Linux) os=linux ;;
	Darwin) os=darwin ;;
	*) fail "there is no archive for $(uname -s). For Windows, download the zip file from $releases" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail "there is no archive for the architecture $(uname -m)" ;;
	esac
}

download() {
	if command -v curl >/dev/null; then
		curl -fsSL -o "$2" "$1" || fail "$1 could not be downloaded"
	elif command -v wget >/dev/null; then
		wget -q -O "$2" "$1" || fail "$1 could not be downloaded"
	else
		fail "curl or wget is needed: install one of them"
	fi
}

# checksum prints the SHA-256 of a file.
checksum() {
	if command -v sha256sum >/dev/null; then
		sha256sum "$1" | cut -d ' ' -f 1
	elif command -v shasum >/dev/null; then
		shasum -a 256 "$1" | cut -d ' ' -f 1
	else
		fail "sha256sum or shasum is needed to verify the download: install one of them"
	fi
}

# replace gives a new program its name: a kcpctl that is running keeps its file.
replace() {
	mv -f "$dir/.$1.new" "$dir/$1"
}

install() {
	mkdir -p "$dir"
	for program in kcpctl kubectl_complete-kcpctl; do
		cp "$tmp/$program" "$dir/.$program.new"
		replace "$program"
	done
	ln -sf kcpctl "$dir/.kubectl-kcpctl.new"
	replace kubectl-kcpctl
	echo "installed $archive in $dir"
	case :${PATH:-}: in
	*:"$dir":*) ;;
	*) echo "$dir is not in PATH: run export PATH=\"$dir:\$PATH\", or add this to the profile of your shell" ;;
	esac
}

# All of the script is read before anything runs: its download may end early.
main() {
	version=
	dir=${HOME:-}/.local/bin
	releases=${KCPCTL_RELEASES:-https://github.com/kcpctl/kcpctl/releases}
	while [ $# -gt 0 ]; do
		[ $# -ge 2 ] || usage
		case $1 in
		--version) version=v${2#v} ;;
		--dir) dir=$2 ;;
		*) usage ;;
		esac
		shift 2
	done
	machine
	from=$releases/latest/download
	[ -z "$version" ] || from=$releases/download/$version
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	trap 'exit 130' INT TERM

	download "$from/checksums.txt" "$tmp/checksums.txt"
	archive=$(sed -n "s/^[0-9a-f]\{64\}  \(kcpctl_[^ ]*_${os}_$arch\.tar\.gz\)\$/\1/p" "$tmp/checksums.txt")
	[ -n "$archive" ] || fail "$from/checksums.txt has no archive for $os on $arch"
	want=$(sed -n "s/^\([0-9a-f]\{64\}\)  $archive\$/\1/p" "$tmp/checksums.txt")
	download "$from/$archive" "$tmp/$archive"
	got=$(checksum "$tmp/$archive")
	[ "$got" = "$want" ] || fail "$archive has the checksum $got instead of $want: nothing is installed"
	tar -xzf "$tmp/$archive" -C "$tmp"
	install
}

main "$@"
