#!/usr/bin/env bash
# Try what make snapshot has built, as users install it: the deb and the rpm into fresh directories with dpkg and rpm, the
# apk unpacked, the archive with install.sh. Each must have kcpctl, the plugin of kubectl, completions and man pages that
# work. Also the checksums, the signature with a key of this run, the SBOMs and the manifests. It needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."
dist=$PWD/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	echo "FAILED: $1" >&2
	exit 1
}

passed() { echo "ok: $1"; }

for tool in dpkg rpm ssh-keygen man tar unzip curl kubectl; do
	command -v "$tool" >/dev/null || fail "$tool is needed: install it"
done
[ -f "$dist/checksums.txt" ] || fail "there is no dist/checksums.txt: run make snapshot"
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) fail "there is no package for $(uname -m)" ;;
esac

# artifact prints the path of the artifact with this suffix. There must be one.
artifact() {
	local found=("$dist"/kcpctl_*"$1")
	[ ${#found[@]} = 1 ] && [ -f "${found[0]}" ] || fail "there is not one artifact $1: ${found[*]}"
	echo "${found[0]}"
}

# same fails if a file of a package is not what the installed kcpctl prints.
same() {
	"$1" completion "$2" | cmp - "$3" || fail "$3 is not the output of kcpctl completion $2"
}

# says fails if the output of a command has no line with this expression.
says() {
	local expression=$1 out
	shift
	out=$(env -C "$work" "$@" 2>&1) || true
	grep -q -- "$expression" <<< "$out" || fail "$* prints: $out"
}

# tried checks the programs in a directory: kcpctl, and kubectl with it as its plugin.
tried() {
	local bin=$1 with="PATH=$1:$PATH"
	[ "$(stat -c %a "$bin/kcpctl")" = 755 ] || fail "$bin/kcpctl has the mode $(stat -c %a "$bin/kcpctl")"
	says "^kcpctl  *v$version\$" "$bin/kcpctl" version
	says "^$bin/kubectl-kcpctl\$" "$with" kubectl plugin list
	says "^kcpctl  *v$version\$" "$with" kubectl kcpctl version
	says "kubectl kcpctl init" "$with" kubectl kcpctl status
	says "^rotate-ca" "$with" kubectl __complete kcpctl certs rotate-
}

# shared checks what a package has besides its programs, below a root. The completion for zsh has a path of its own.
shared() {
	local share=$1/usr/share
	same "$1/usr/bin/kcpctl" bash "$share/bash-completion/completions/kcpctl"
	same "$1/usr/bin/kcpctl" fish "$share/fish/vendor_completions.d/kcpctl.fish"
	same "$1/usr/bin/kcpctl" zsh "$share/zsh/$2/_kcpctl"
	grep -q "Apache License" "$share/$3" || fail "$share/$3 is not the license"
	manuals "$share/man/man1" "$1/usr/bin/kcpctl"
}

# manuals checks the man pages in a directory: man prints them without warnings, and there is one for each command.
manuals() {
	local page warnings name
	for page in "$1"/*.gz; do
		warnings=$(man --warnings -E UTF-8 -l -Tutf8 "$page" 2>&1 >/dev/null)
		[ -z "$warnings" ] || fail "$page: $warnings"
	done
	for name in kcpctl kcpctl-up kcpctl-certs-rotate-ca; do
		[ -f "$1/$name.1.gz" ] || fail "$1 has no page $name"
	done
	says "--timeout duration" MANWIDTH=120 GROFF_NO_SGR=1 man -E UTF-8 -l -P "col -b" "$1/kcpctl-up.1.gz"
}

name=$(basename "$(artifact "_linux_$arch.tar.gz")")
version=${name#kcpctl_}
version=${version%_linux_*}

# Checksums, and their signature: changed checksums must not pass.
(cd "$dist" && sha256sum --check --strict --quiet checksums.txt)
for file in "$dist"/kcpctl_*.*; do
	[ -d "$file" ] || grep -q "  $(basename "$file")\$" "$dist/checksums.txt" || fail "checksums.txt has no $(basename "$file")"
done
passed "checksums of $(wc -l < "$dist/checksums.txt") artifacts"
ssh-keygen -q -t ed25519 -N '' -C '' -f "$work/key"
echo "kcpctl namespaces=\"file\" $(cat "$work/key.pub")" > "$work/allowed_signers"
cp "$dist/checksums.txt" "$work/checksums.txt"
ssh-keygen -q -Y sign -n file -f "$work/key" "$work/checksums.txt"
verify() { ssh-keygen -Y verify -f "$1" -I kcpctl -n file -s "$work/checksums.txt.sig" < "$work/checksums.txt" >/dev/null 2>&1; }
verify "$work/allowed_signers" || fail "the signature is not valid"
! verify tools/release/allowed_signers || fail "the signature of another key is valid"
echo "changed" >> "$work/checksums.txt"
! verify "$work/allowed_signers" || fail "the signature of changed checksums is valid"
passed "a signature by a key of this run"

root=$work/deb
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
touch "$root/var/lib/dpkg/status"
dpkg --root="$root" --log="$work/dpkg.log" --install "$(artifact "_linux_$arch.deb")" >/dev/null
dpkg --root="$root" --status kcpctl | grep -q "^Status: install ok installed" || fail "dpkg has not installed kcpctl"
tried "$root/usr/bin"
shared "$root" vendor-completions doc/kcpctl/copyright
dpkg --root="$root" --log="$work/dpkg.log" --purge kcpctl >/dev/null
remains=$(find "$root" -path "$root/var" -prune -o ! -type d -print)
[ -z "$remains" ] || fail "files remain after dpkg --purge: $remains"
passed "deb, installed and purged with dpkg"

# Debian's rpm refuses to install packages, because they are not those of Debian.
force=()
[[ $(rpm --help) != *--force-debian* ]] || force=(--force-debian)
root=$work/rpm
rpm --root "$root" --initdb
rpm --root "$root" --install --nodeps "${force[@]}" "$(artifact "_linux_$arch.rpm")"
rpm --root "$root" --verify --nodeps kcpctl || fail "rpm --verify finds differences"
tried "$root/usr/bin"
shared "$root" site-functions licenses/kcpctl/LICENSE
rpm --root "$root" --erase --nodeps "${force[@]}" kcpctl
[ ! -e "$root/usr/bin/kcpctl" ] || fail "kcpctl remains after rpm --erase"
passed "rpm, installed and erased with rpm"

root=$work/apk
mkdir "$root"
tar -xzf "$(artifact "_linux_$arch.apk")" -C "$root" 2>/dev/null
grep -q "^pkgname = kcpctl\$" "$root/.PKGINFO" || fail "the apk has no .PKGINFO of kcpctl"
tried "$root/usr/bin"
shared "$root" site-functions licenses/kcpctl/LICENSE
passed "apk, unpacked"

mkdir -p "$work/mirror/latest" "$work/home"
ln -s "$dist" "$work/mirror/latest/download"
HOME=$work/home KCPCTL_RELEASES=file://$work/mirror ./install.sh >/dev/null
tried "$work/home/.local/bin"
passed "archive, installed with install.sh"

for file in "$dist"/kcpctl_*.tar.gz; do
	tar -tzf "$file" > "$work/list"
	for name in LICENSE kcpctl kubectl_complete-kcpctl man/kcpctl.1.gz completions/_kcpctl; do
		grep -qxF "$name" "$work/list" || fail "$file has no $name"
	done
	! tar --numeric-owner -tvzf "$file" | grep -v ' 0/0 ' || fail "$file has files of another owner"
done
for file in "$dist"/kcpctl_*.zip; do
	unzip -l "$file" | grep -q ' kcpctl\.exe$' || fail "$file has no kcpctl.exe"
done
passed "$(ls "$dist"/kcpctl_*.tar.gz "$dist"/kcpctl_*.zip | wc -l) archives"

# The archive of the image has the index whose digest the binaries know.
mkdir "$work/image"
tar -xf "$(artifact _image.tar)" -C "$work/image"
digest=$(grep -o 'sha256:[0-9a-f]*' "$work/image/index.json")
(cd "$work/image/blobs/sha256" && sha256sum * | awk '$1 != $2 {exit 1}') || fail "the image has a blob with another digest"
for architecture in amd64 arm64; do
	grep -q "\"architecture\":\"$architecture\"" "$work/image/blobs/sha256/${digest#sha256:}" || fail "the image has no $architecture"
done
says "^image  *ghcr.io/kcpctl/kcpctl:v$version@$digest\$" "$work/home/.local/bin/kcpctl" version
passed "image $digest"

for file in "$dist"/kcpctl_*.cdx.json; do
	grep -q '"bomFormat": "CycloneDX"' "$file" || fail "$file is not a CycloneDX document"
	grep -q '"pkg:golang/k8s.io/client-go@v' "$file" || fail "$file has no k8s.io/client-go"
done
passed "$(ls "$dist"/kcpctl_*.cdx.json | wc -l) SBOMs"

# A manifest has the checksum of each archive that it names.
for manifest in krew/kcpctl.yaml homebrew/Casks/kcpctl.rb scoop/kcpctl.json; do
	sums=$(grep -oE '\b[0-9a-f]{64}\b' "$dist/$manifest") || fail "$manifest has no checksum"
	for sum in $sums; do
		grep -q "^$sum  kcpctl_.*\(tar\.gz\|zip\)\$" "$dist/checksums.txt" || fail "$manifest has the checksum $sum, checksums.txt has not"
	done
done
passed "manifests of krew, Homebrew and scoop"
