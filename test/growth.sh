#!/usr/bin/env bash
# Print how many bytes of code and data each package adds to kcpctl since a commit, the largest first: test/growth.sh COMMIT
set -euo pipefail
cd "$(dirname "$0")/.."
export GOOS=linux GOARCH=amd64 CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# A symbol begins with the path of its package: everything to the first dot after the last slash.
packages() {
	go tool nm -size "$1" | awk '{
		name = $4; cut = 0
		for (i = length(name); i > 0; i--) if (substr(name, i, 1) == "/") { cut = i; break }
		rest = substr(name, cut + 1); sub(/[.(\[].*/, "", rest)
		sizes[substr(name, 1, cut) rest] += $2
	} END { for (p in sizes) print p, sizes[p] }' | sort
}
git clone -q --no-checkout . "$dir/base"
git -C "$dir/base" checkout -q "$1"
go build -ldflags=-w -o "$dir/new" .
(cd "$dir/base" && go build -ldflags=-w -o "$dir/old" .)
join -a 1 -a 2 -e 0 -o 0,1.2,2.2 <(packages "$dir/old") <(packages "$dir/new") |
	awk '$3 != $2 { printf "%+10d  %9d  %s\n", $3 - $2, $3, $1 }' | sort -rn | head -30
