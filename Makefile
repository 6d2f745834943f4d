# kcpctl. `make help` lists the targets. README.md describes the first two commands to run.

SHELL      := bash -o pipefail
.DEFAULT_GOAL := help
KCPCTL     := bin/kcpctl
VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS    := -s -w -X github.com/kcpctl/kcpctl/internal/kit/version.version=$(VERSION)
GOFLAGS    += -buildvcs=false
# go build that prints its progress, also when the output is not a terminal.
GO_BUILD   := go run ./test/gobuild/run
TESTBED    := bin/testbed
# Not $(MAKE) in the recipe of demo: make -n runs such a recipe.
BUILD_KCP  := $(MAKE) -s kcp-bin-dir
ARCH       ?= $(shell go env GOARCH)
IMAGE      ?= ghcr.io/kcpctl/kcpctl:$(VERSION)
NODE       ?= a
STEPS      ?= 5000
# The most bytes that kcpctl for Linux on amd64 may have.
MAX_SIZE   := 39500000
export GOFLAGS
export CGO_ENABLED = 0

.PHONY: help
help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/kcpctl
	$(GO_BUILD) -trimpath -ldflags "$(LDFLAGS)" -o $(KCPCTL) .

.PHONY: image
image: ## Build an image of kcpctl for Linux, bin/image/kcpctl.tar, for docker load, podman load or ctr images import (ARCH=arm64)
	$(GO_BUILD) GOOS=linux GOARCH=$(ARCH) -trimpath -ldflags "$(LDFLAGS)" -o bin/image/$(ARCH)/kcpctl .
	go run ./test/image/run -o bin/image/kcpctl.tar -name $(IMAGE) -arch $(ARCH) bin/image/$(ARCH)

.PHONY: demo
demo: build ## A sharded kcp on this machine: kcp's binaries are downloaded, or built if that fails
	@dir="$$($(KCPCTL) download -f examples/sharded.yaml)" || { \
		echo "kcp's binaries could not be downloaded. Building them takes some minutes." >&2; \
		dir="$$($(BUILD_KCP))"; \
	} && $(KCPCTL) up --local -f examples/sharded.yaml --kcp-bin-dir "$$dir"

# The commit that quick compares with: that of the upstream branch, or the last one.
QUICK_BASE ?= $(shell git rev-parse -q --verify '@{upstream}' 2>/dev/null || git rev-parse HEAD)

.PHONY: quick
quick: lint ## Lint, and run the golden tests, the import rules and the tests of packages that you changed
	go test ./internal/desired/render ./internal/tools/... $$( \
		{ git diff --name-only --diff-filter=d $(QUICK_BASE); git ls-files -o --exclude-standard; } | grep -E '\.go$$|/testdata/' | \
		sed 's,/testdata/.*,/x,' | xargs -r -n1 dirname | sort -u | sed 's,^,./,')

.PHONY: test
test: unit integration e2e ## Run the tests of a contributor: unit, golden, CLI, a real kube-apiserver, a real kcp on both runtimes

.PHONY: test-long
test-long: race model faults-few e2e-long ## Run the long tests: data races, random commands, faults and day 2 on a real kcp (45 minutes)

.PHONY: unit
unit: packages ## Run unit, golden and CLI tests, and a few random steps of the model
	go test ./...

# Tests that start hundreds of commands one after another. With the race detector they take minutes.
SERIAL := TestCompletedValuesAreAccepted|TestIDsOfStatusAreAccepted|TestWhatUsersAreToldToType

.PHONY: race
race: ## Run the unit tests with the race detector (needs gcc)
	@CGO_ENABLED=1 $(GO_BUILD) -race ./cmd/ui ./internal/...
	CGO_ENABLED=1 go test -race -timeout 30m ./cmd/ui ./internal/...

.PHONY: race-cmd
race-cmd: ## Run the unit tests of the commands with the race detector: they run one after another (needs gcc)
	CGO_ENABLED=1 go test -race -timeout 30m -skip '$(SERIAL)' ./cmd

.PHONY: model
model: packages ## Run random commands of two operators, with crashes, on simulated clusters (STEPS=100000: one hour)
	go test -timeout 12h -v -run TestModel ./test/model -model.steps $(STEPS) -rapid.checks 1000

.PHONY: model-workloads
model-workloads: packages ## Run random users, clusters, networks, restarts and time on the controller and the syncers, in simulated time (STEPS=100000: one hour)
	go test -tags model -timeout 12h -v -run TestModel ./test/workloads -model.steps $(STEPS) -rapid.checks 100000

.PHONY: planted
planted: packages ## Plant defects, one at a time: model-workloads and model must find each of them (PLANTED=installation: only model)
	go run ./test/planted $(PLANTED)

.PHONY: integration
integration: packages apiserver ## Run tests against a real kube-apiserver
	go test -tags integration -timeout 30m ./internal/runtime/kube/... ./internal/workload/... ./test/integration/...

.PHONY: faults-few
faults-few: packages apiserver ## Make every third request of up, add-shard and certs renew fail in one way
	go test -tags integration -timeout 30m ./test/faults -faults=few

.PHONY: faults
faults: packages apiserver ## Make every request of up, add-shard and certs renew fail in every way (more than one hour)
	go test -tags integration -timeout 180m -v ./test/faults -faults=all

.PHONY: e2e
e2e: build ## Run tests with a real kcp, on the testbed or on the cluster of E2E_KUBECONFIG
	./test/e2e/run.sh

.PHONY: e2e-long
e2e-long: build ## Run the long end-to-end tests: checks, shards, a drain and moves under load, a lost member, two clusters, tenants, workloads, an agent
	TAGS=e2e,long ./test/e2e/run.sh -run 'Checks|Shards|LocalDrain|LocalMove|LostMember|LocalMinimal|Families|Zones|Tenants|Workloads|Backup|ClusterAgent$$'

.PHONY: e2e-day2
e2e-day2: build ## Run the longest end-to-end tests: servers of virtual workspaces, every certificate and authority replaced on both runtimes, links between clusters cut, kcp's production guides, addresses that clusters assign, patches that kcp loses, an upgrade, a renewal and a rotation under load, drains of shards with several replicas, a cluster that joins others, tokens that are renewed, an agent on another cluster and while kcp changes, kills of everything below workloads, sequences of commands with mistakes, the takeover from kcp-operator, the commands of the documentation (110 minutes)
	TAGS=e2e,long,day2 ./test/e2e/run.sh -run 'Certificates|Sequences|Adopt|VirtualWorkspaces|ClusterDrain|UnderLoad|LostEphemeral|ZonesCut|Guide|AgentZones|AgentChanges|AgentCluster|LocalGuard|ClusterAuto|WorkloadsChaos|WorkloadsKills|WorkloadsFail|WorkloadsJoin|WorkloadsSchemas|WorkloadsTokens|PageReadme|PageShards|PageWorkspaces|PageImport|PageOperations|PageAgents|PageCluster'

.PHONY: bench
bench: build $(TESTBED) ## Measure speed and memory, as ratios of one run (BENCH="-runs 3 local": only some cases)
	go run ./test/bench $(BENCH)

.PHONY: lint
lint: ## Run gofmt, go vet and a check of habits that make code harder to read
	@unformatted=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go vet -tags integration ./...
	go vet -tags e2e,long,day2,model ./...
	GOOS=darwin GOARCH=arm64 go vet . ./cmd/... ./internal/...
	go run ./internal/tools/habits

.PHONY: generate
generate: ## Regenerate the generated documents
	go generate ./...

.PHONY: size
size: ## Build kcpctl for Linux on amd64, and fail if it is larger than MAX_SIZE
	$(GO_BUILD) GOOS=linux GOARCH=amd64 -trimpath -ldflags "$(LDFLAGS)" -o bin/image/amd64/kcpctl .
	@size=$$(wc -c < bin/image/amd64/kcpctl); echo "kcpctl has $$size bytes"; \
	[ $$size -le $(MAX_SIZE) ] || { echo "that is more than $(MAX_SIZE): see which package makes it larger (go tool nm -size)"; exit 1; }

.PHONY: verify
verify: lint generate size ## Lint, and fail if a generated file is out of date, kcpctl is too large, or a text reads as translated
	@git diff --exit-code -- docs templates internal/desired/agent || { echo "generated files are out of date: run make generate and commit"; exit 1; }
	go run ./internal/tools/words .
	@! git grep -lE '^-----BEGIN [A-Z ]*PRIVATE KEY' -- ':!*.go' || { echo "a private key is in the repository: remove it"; exit 1; }
	go mod verify

.PHONY: testbed
testbed: $(TESTBED) ## Build and start a real Kubernetes node (NODE=b: a second one in its own network)
	$(TESTBED) up --node $(NODE)

.PHONY: testbed-down
testbed-down: $(TESTBED) ## Stop the nodes and remove everything of them except their binaries and images
	$(TESTBED) down --node all

.PHONY: testbed-kubeconfig
testbed-kubeconfig: $(TESTBED) ## Print the path of the node's kubeconfig
	@$(TESTBED) kubeconfig --node $(NODE)

.PHONY: kcp-bin-dir
kcp-bin-dir: $(TESTBED) ## Build kcp if necessary, and print the directory of its binaries
	@$(TESTBED) kcp-bin-dir

.PHONY: agent-bin-dir
agent-bin-dir: $(TESTBED) ## Build the agent of service clusters if necessary (5 minutes), and print the directory of its binary
	@$(TESTBED) agent-bin-dir

# What the targets above need. Tests print nothing while they compile or build, so these do it first, with progress.
.PHONY: $(TESTBED) packages apiserver
$(TESTBED):
	@$(GO_BUILD) -o $@ ./test/testbed

packages:
	@$(GO_BUILD) ./cmd/... ./internal/...

apiserver: $(TESTBED)
	@$(TESTBED) bin-dir kube-apiserver etcd >/dev/null
