#!/usr/bin/env bash
# Run the end-to-end tests of packages, on the cluster of E2E_KUBECONFIG or else on the testbed, and on this machine itself. Other
# arguments are flags of go test: test/e2e/run.sh ./test/e2e/cluster -run TestClusterLife
#
#   E2E_KUBECONFIG   another cluster, in which the tests may create namespaces
#   E2E_KUBECONFIG_B a second cluster, for the long tests: nodes of both reach the node ports of the other, but not its pods
#   E2E_KCP_BIN_DIR  directory of kcp's binaries (default: the testbed's, built if they do not exist)
#   E2E_KCP_OLDER_BIN_DIR  the same, of the release that the tests upgrade
#   E2E_AGENT_BIN_DIR  directory of the agent's binary, the same
#   E2E_KCPCTL       the kcpctl to test (default: bin/kcpctl, rebuilt)
#   TEST             the command that runs go test, with flags
#   PART=2/7         only the second of seven parts of the tests
#   KEEP_TESTBED=1   keep the node running if this script has started it
set -euo pipefail
cd "$(dirname "$0")/../.."
export CGO_ENABLED="${CGO_ENABLED:-0}" GOFLAGS="${GOFLAGS:--buildvcs=false -trimpath}"

packages=() flags=()
for argument in "$@"; do
	case "$argument" in
	./*) packages+=("$argument") ;;
	*) flags+=("$argument") ;;
	esac
done
nodes=1
[[ "${packages[*]}" != *long* && "${packages[*]}" != *day2* ]] || nodes=2

say() { echo "== $*" >&2; }
testbed() { bin/testbed "$@"; }
go run ./test/gobuild/run -o bin/testbed ./test/testbed
make -s bin/gotestsum

if [ -z "${E2E_KCPCTL:-}" ]; then
	say "build bin/kcpctl"
	make -s build
fi
started=""
stop_nodes() {
	for node in $started; do
		say "stop node $node"
		testbed down --node "$node" || say "node $node was not stopped"
	done
}
trap stop_nodes EXIT
start_node() {
	if ! testbed kubeconfig --node "$1" >/dev/null 2>&1 && [ "${KEEP_TESTBED:-}" != 1 ]; then
		started="$1 $started"
	fi
	say "start the Kubernetes node $1, unless it runs"
	testbed up --node "$1"
}
if [ -z "${E2E_KUBECONFIG:-}" ]; then
	start_node a
	E2E_KUBECONFIG="$(testbed kubeconfig)"
	if [ $nodes = 2 ]; then
		start_node b
		E2E_KUBECONFIG_B="$(testbed kubeconfig --node b)"
		E2E_TESTBED="$(realpath bin/testbed)" # it cuts the link between the nodes
		export E2E_KUBECONFIG_B E2E_TESTBED
		for node in a b; do
			testbed image kcp-v0.32.2 --node $node
		done
		testbed packages prometheus
		testbed image prometheus
	fi
	PATH="$(testbed bin-dir kubectl):$PATH"
elif ! command -v kubectl >/dev/null; then
	PATH="$(testbed bin-dir kubectl):$PATH"
fi
if [ -z "${E2E_KCP_BIN_DIR:-}" ]; then
	say "build kcp, unless it is built"
	E2E_KCP_BIN_DIR="$(testbed kcp-bin-dir)"
fi
# Only long tests upgrade kcp and run agents.
if [ $nodes = 2 ] && [ -z "${E2E_KCP_OLDER_BIN_DIR:-}" ]; then
	say "build an older kcp, unless it is built"
	E2E_KCP_OLDER_BIN_DIR="$(testbed kcp-bin-dir --version v0.32.2)"
fi
if [ $nodes = 2 ] && [ -z "${E2E_AGENT_BIN_DIR:-}" ]; then
	say "build the agent of service clusters, unless it is built"
	E2E_AGENT_BIN_DIR="$(testbed agent-bin-dir)"
fi
E2E_KCPCTL="$(realpath "${E2E_KCPCTL:-bin/kcpctl}")"
E2E_KUBECONFIG="$(realpath "$E2E_KUBECONFIG")"
E2E_KCP_BIN_DIR="$(realpath "$E2E_KCP_BIN_DIR")"
if [ $nodes = 2 ]; then
	E2E_KCP_OLDER_BIN_DIR="$(realpath "$E2E_KCP_OLDER_BIN_DIR")"
	export E2E_AGENT_BIN_DIR E2E_KCP_OLDER_BIN_DIR
fi
export E2E_KCPCTL E2E_KUBECONFIG E2E_KCP_BIN_DIR PATH

if [ -n "${PART:-}" ]; then # every n-th test, so that the parts take about the same time
	tests="$(go test -list . "${packages[@]}" | grep ^Test | awk -v n="${PART%/*}" -v of="${PART#*/}" 'NR % of == n % of' | paste -sd '|')"
	flags+=(-run "^($tests)\$")
fi
say "test $E2E_KCPCTL with $E2E_KUBECONFIG and $E2E_KCP_BIN_DIR"
# Two packages run beside each other: while pods of one start and end, processes of the other have the processors.
${TEST:-bin/gotestsum --format testname} --packages="${packages[*]}" -- -vet=off -ldflags=-w -count=1 -p 2 -parallel 8 -timeout 40m "${flags[@]}"
