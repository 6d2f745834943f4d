# kcpctl. `make help` lists the targets; README.md says which two to start with.

SHELL      := bash -o pipefail
.DEFAULT_GOAL := help
KCPCTL     := bin/kcpctl
VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS    := -s -w -X github.com/kcpctl/kcpctl/internal/version.version=$(VERSION)
GOFLAGS    += -buildvcs=false
TESTBED    := go run ./test/testbed
NODE       ?= a
STEPS      ?= 5000
# What is free of phrases that read as translated, and stays so.
PLAIN      := docs README.md internal/record internal/machine internal/atomicfile internal/outputdir internal/etcd
export GOFLAGS CGO_ENABLED = 0

.PHONY: help
help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/kcpctl
	go build -trimpath -ldflags "$(LDFLAGS)" -o $(KCPCTL) .

.PHONY: demo
demo: build ## A sharded kcp, with everything it needs: this machine must be Linux, and you root on it
	$(KCPCTL) up --local -f examples/sharded.yaml --kcp-bin-dir "$$($(MAKE) -s kcp-bin-dir)"

.PHONY: test
test: unit integration e2e ## What a contributor runs: unit, golden, CLI, a real kube-apiserver, a real node with a real kcp

.PHONY: test-long
test-long: race model faults-few e2e-long ## What else guards data: races, random commands, faults, day two and load on a real kcp (about 45 minutes)

.PHONY: unit
unit: ## Unit, golden and CLI tests, and some random steps of the model
	go test ./...

.PHONY: race
race: ## The unit tests with the race detector (needs gcc)
	CGO_ENABLED=1 go test -race -timeout 30m ./cmd/... ./internal/...

.PHONY: model
model: ## Random commands of two operators, with crashes, on a model of clusters (STEPS=100000: about an hour)
	go test -timeout 12h -v -run TestModel ./test/model -model.steps $(STEPS) -rapid.checks 1000

.PHONY: integration
integration: ## Tests against a real kube-apiserver
	go test -tags integration -timeout 30m ./internal/kube/... ./test/integration/...

.PHONY: faults-few
faults-few: ## Every third request of up, add-shard and certs renew fails in one way
	go test -tags integration -timeout 30m ./test/faults -faults=few

.PHONY: faults
faults: ## Every request of up, add-shard and certs renew fails in every way there is (more than an hour)
	go test -tags integration -timeout 180m -v ./test/faults -faults=all

.PHONY: e2e
e2e: build ## Tests against real kcp: on the testbed, or on the cluster of E2E_KUBECONFIG
	./test/e2e/run.sh

.PHONY: e2e-long
e2e-long: build ## The long ones: checks, shards, lost members, sequences of commands, load
	TAGS=e2e,long ./test/e2e/run.sh -run 'Checks|Shards|LostMember|Families|Sequences|ClusterUnderLoad'

.PHONY: e2e-day2
e2e-day2: build ## The longest: every certificate and authority replaced, on both runtimes (about a quarter of an hour)
	TAGS=e2e,long,day2 ./test/e2e/run.sh -run 'Certificates|LocalUnderLoad|RenewUnderLoad|RotateUnderLoad'

.PHONY: bench
bench: build ## Measure what is promised, as ratios in one run (BENCH="-runs 3 local": some of it)
	go run ./test/bench $(BENCH)

.PHONY: lint
lint: ## gofmt and go vet
	@unformatted=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go vet -tags integration ./...
	go vet -tags e2e,long,day2 ./...
	GOOS=darwin GOARCH=arm64 go vet . ./cmd/... ./internal/...

.PHONY: generate
generate: ## Write the generated documents again
	go generate ./...

.PHONY: verify
verify: lint generate ## Lint, and fail if a generated file is out of date or a document reads as translated
	@git diff --exit-code -- docs || { echo "generated files are out of date: run make generate and commit"; exit 1; }
	go run ./internal/tools/words $(PLAIN)
	@! git grep -lE '^-----BEGIN [A-Z ]*PRIVATE KEY' -- ':!*.go' || { echo "a private key is in the repository: remove it"; exit 1; }
	go mod verify

.PHONY: testbed
testbed: ## Build and start a real Kubernetes node (NODE=b: a second one in a network of its own)
	$(TESTBED) up --node $(NODE)

.PHONY: testbed-down
testbed-down: ## Stop the nodes and remove all they left, but for what was built
	$(TESTBED) down --node all

.PHONY: testbed-kubeconfig
testbed-kubeconfig: ## Print the path of the node's kubeconfig
	@$(TESTBED) kubeconfig --node $(NODE)

.PHONY: kcp-bin-dir
kcp-bin-dir: ## Print the folder of the kcp binaries, built if need be
	@$(TESTBED) kcp-bin-dir
