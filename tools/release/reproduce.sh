#!/usr/bin/env bash
# Build the current commit twice, and compare all artifacts byte by byte. The second build has another path, umask, time
# zone, language and times of files, and runs later. COLD=1 also compiles everything in another build cache.
#
#   tools/release/reproduce.sh DIRECTORY OF THE TOOLS
set -euo pipefail
cd "$(dirname "$0")/../.."
tools=$1
work=$PWD/bin/reproduce
one=$work/one/kcpctl
two=$work/another/longer/path/kcpctl

# build builds a snapshot in a clone with the tools, and prints each line of the log after its name.
build() {
	make -C "$1" --no-print-directory -o release-deps snapshot RELEASE_TOOLS="$tools" 2>&1 |
		while IFS= read -r line; do echo "$2: $line"; done
}

# artifacts prints the files of a snapshot, without those that describe how GoReleaser was called.
artifacts() {
	(cd "$1/dist" && find . -type f | sed 's,^\./,,' | grep -vxE 'config\.yaml|artifacts\.json|metadata\.json' | sort)
}

# sum prints the start of the checksum of a file.
sum() {
	if [ -f "$1" ]; then sha256sum "$1" | cut -c 1-16; else echo missing; fi
}

rm -rf "$work"
mkdir -p "$work"
[ -z "$(git status --porcelain)" ] || echo "uncommitted changes are not built" >&2
git clone -q "$PWD" "$one"
build "$one" first
(
	umask 077
	git clone -q "$PWD" "$two"
	find "$two" -path "$two/.git" -prune -o -type f -exec touch -d '2001-02-03 04:05:06' {} +
	[ -z "${COLD:-}" ] || export GOCACHE="$work/cache"
	export TZ=Pacific/Kiritimati LC_ALL=C
	build "$two" second
)

different=0
format='%-58s %-17s %-17s %s\n'
printf "$format" artifact first second result
while read -r name; do
	a=$(sum "$one/dist/$name")
	b=$(sum "$two/dist/$name")
	result=same
	cmp -s "$one/dist/$name" "$two/dist/$name" || { result=DIFFERENT; different=$((different + 1)); }
	printf "$format" "$name" "$a" "$b" "$result"
done < <({ artifacts "$one"; artifacts "$two"; } | sort -u)
[ "$different" = 0 ] || { echo "$different artifacts are different" >&2; exit 1; }
[ -f "$one/dist/checksums.txt" ] || { echo "the snapshot has no checksums.txt" >&2; exit 1; }
rm -rf "$work"
