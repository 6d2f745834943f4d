# kcpctl. `make help` lists the targets. README.md describes the first two commands to run.

SHELL      := bash -o pipefail
.DEFAULT_GOAL := help
KCPCTL     := bin/kcpctl
VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
version_go := github.com/kcpctl/kcpctl/internal/kit/version
LDFLAGS    := -s -w -X $(version_go).version=$(VERSION) -X $(version_go).commit=$(COMMIT) -X $(version_go).date=$(DATE)
# With -trimpath the build cache is the same for each clone.
GOFLAGS    += -buildvcs=false -trimpath
# go build that prints its progress, also when the output is not a terminal.
GO_BUILD   := go run ./test/gobuild/run
TESTBED    := bin/testbed
GOTESTSUM  := bin/gotestsum
# Not $(MAKE) in the recipe of demo: make -n runs such a recipe.
BUILD_KCP  := $(MAKE) -s kcp-bin-dir
IMAGE      ?= ghcr.io/kcpctl/kcpctl:$(subst +,-,$(VERSION))
NODE       ?= a
STEPS      ?= 5000
# The most bytes that kcpctl for Linux on amd64 may have.
MAX_SIZE   := 40000000
export GOFLAGS
export CGO_ENABLED = 0

.PHONY: help
help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/kcpctl
	$(GO_BUILD) -ldflags "$(LDFLAGS)" -o $(KCPCTL) .

.PHONY: image
image: ## Build the image of kcpctl for Linux on amd64 and arm64, bin/image/kcpctl.tar, and print its digest (IMAGE=NAME:TAG)
	$(GO_BUILD) GOOS=linux GOARCH=amd64 -ldflags "$(LDFLAGS)" -o bin/image/amd64/kcpctl .
	$(GO_BUILD) GOOS=linux GOARCH=arm64 -ldflags "$(LDFLAGS)" -o bin/image/arm64/kcpctl .
	@rm -f bin/image/digest
	go run ./test/image/run -o bin/image/kcpctl.tar -name $(IMAGE) bin/image amd64 arm64 | tee bin/image/digest

.PHONY: demo
demo: build ## A sharded kcp on this machine: kcp's binaries are downloaded, or built if that fails
	@dir="$$($(KCPCTL) download -f examples/sharded.yaml)" || { \
		echo "kcp's binaries could not be downloaded. Building them takes some minutes." >&2; \
		dir="$$($(BUILD_KCP))"; \
	} && $(KCPCTL) up --local -f examples/sharded.yaml --kcp-bin-dir "$$dir"

.PHONY: quick
quick: lint ## Lint, and run the golden tests, the import rules and the tests of packages that you changed
	go test -short ./internal/desired/render ./internal/tools/... $$( \
		{ git diff --name-only --diff-filter=d $(BASE); git ls-files -o --exclude-standard; } | grep -E '\.go$$|/testdata/' | \
		sed 's,/testdata/.*,/x,' | xargs -r -n1 dirname | sort -u | sed 's,^,./,' | grep -vE '$(REAL)')

# Which test runs where is said by its directory: packages that import test/apiserver need a kube-apiserver, and REAL has the
# directories with tests of real programs that take minutes. Each test of the other packages is a unit test.
REAL        := /test/(e2e/(local|cluster|pods|long|day2)|faults)$$
# The packages whose list of imports in tests passes a filter.
packages-of  = $(shell go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | $(1) | cut -d' ' -f1 | grep -vE '$(REAL)')$(if \
	$(filter-out 0,$(.SHELLSTATUS)),$(error go list has failed or has no such package))
UNIT         = $(call packages-of,grep -v test/apiserver)
INTEGRATION  = $(call packages-of,grep test/apiserver)
RANDOM       = $(call packages-of,grep pgregory.net/rapid)
# gotestsum prints a line for each package, the failed tests and a summary. The results are in bin/tests. AGAIN repeats a
# failed test once, for tests with real programs in real time: unit tests and models are never repeated.
TEST         = $(GOTESTSUM) --format-hide-empty-pkg --junitfile bin/tests/$@.xml --jsonfile bin/tests/$@.json
AGAIN        = --rerun-fails=1 --rerun-fails-run-root-test --rerun-fails-max-failures=2 --rerun-fails-report bin/tests/$@.again
# Tests are vetted once, by lint, and no debugger reads them.
FLAGS        = -vet=off -ldflags=-w
E2E          = TEST="$(TEST) --format testname $(AGAIN)" ./test/e2e/run.sh
# Random tests have the same cases in each run. make search has others.
export RAPID_SEED ?= 1

.PHONY: deps
deps: packages $(TESTBED) $(GOTESTSUM) ## Download and build everything that the tests need, and install Debian packages
	go mod download
	$(TESTBED) packages
	$(TESTBED) build
	@CGO_ENABLED=1 $(GO_BUILD) -race $(RACE)

.PHONY: test
test: unit integration e2e ## Run the tests of a contributor: unit, golden, CLI, a real kube-apiserver, a real kcp on both runtimes

.PHONY: unit
unit: packages $(GOTESTSUM) ## Run unit, golden and CLI tests, and a few random steps of the models
	@$(TEST) -- $(FLAGS) -short -timeout 20m $(UNIT)

.PHONY: integration
integration: packages apiserver $(GOTESTSUM) ## Run the packages with tests against a real kube-apiserver
	@$(TEST) $(AGAIN) --packages="$(INTEGRATION)" -- $(FLAGS) -count=1 -parallel 4 -timeout 15m

.PHONY: e2e
e2e: build $(GOTESTSUM) ## Run tests with a real kcp, on the testbed or on the cluster of E2E_KUBECONFIG
	@$(E2E) ./test/e2e/cluster ./test/e2e/local ./test/e2e/pods

# Short parts of the long tests, for a change that touches them.
.PHONY: samples
samples: race-sample model-sample model-workloads-sample faults-sample ## Run short parts of race, model and faults

# The packages of the directories in which goroutines share the most, without those that start none and lock nothing.
RACE = $(shell grep -rlE --include='*.go' --exclude='*_test.go' '^\s+go |"sync|/sync/|/parallel"' \
	internal/kit internal/engine/proxy internal/runtime/kube internal/workload | xargs -n1 dirname | sort -u | sed 's,^,./,')

race race-cmd race-sample: export CGO_ENABLED = 1

.PHONY: race-sample
race-sample: $(GOTESTSUM)
	@CGO_ENABLED=1 $(GO_BUILD) -race $(RACE)
	@$(TEST) -- $(FLAGS) -race -short -timeout 20m $(RACE)

.PHONY: model-sample
model-sample: packages $(GOTESTSUM)
	@$(TEST) -- $(FLAGS) -timeout 15m -run TestModel ./test/model -model.steps 1000

.PHONY: model-workloads-sample
model-workloads-sample: packages $(GOTESTSUM)
	@$(TEST) -- $(FLAGS) -timeout 15m -run TestModel ./test/workloads -model.steps 200

.PHONY: faults-sample
faults-sample: packages apiserver $(GOTESTSUM)
	@$(TEST) $(AGAIN) --packages=./test/faults -- $(FLAGS) -timeout 15m -args -faults=slice

# The parts of make test-long: each takes at most 20 minutes and can run alone.
PARTS := race race-cmd faults-few model model-workloads planted-workloads $(foreach n,1 2 3,e2e-long-$(n)) $(foreach n,1 2 3 4 5 6 7,e2e-day2-$(n))

.PHONY: test-long
test-long: ## Run the long tests, a part after the other: data races, random commands, faults, day 2 on a real kcp (four hours)
	@for part in $(PARTS); do echo "== make $$part"; $(MAKE) $$part || failed="$$failed $$part"; done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

.PHONY: race
race: $(GOTESTSUM) ## Run the unit tests with the race detector (needs gcc)
	@CGO_ENABLED=1 $(GO_BUILD) -race ./cmd/ui ./internal/...
	@$(TEST) -- $(FLAGS) -race -short -timeout 30m ./cmd/ui ./internal/...

# Tests that start hundreds of commands one after another. With the race detector they take minutes.
SERIAL := TestCompletedValuesAreAccepted|TestIDsOfStatusAreAccepted|TestWhatUsersAreToldToType

.PHONY: race-cmd
race-cmd: $(GOTESTSUM) ## Run the unit tests of the commands with the race detector: they run one after another (needs gcc)
	@$(TEST) -- $(FLAGS) -race -timeout 30m -skip '$(SERIAL)' ./cmd

.PHONY: model
model: packages $(GOTESTSUM) ## Run random commands of two operators, with crashes, on simulated clusters (STEPS=100000: one hour)
	@$(TEST) -- $(FLAGS) -timeout 12h -run Model$$ ./test/model -model.steps $(STEPS) -rapid.checks 1000

.PHONY: model-workloads
model-workloads: packages $(GOTESTSUM) ## Run random users, clusters, networks, restarts and time on the controller and the syncers (STEPS=100000: one hour)
	@$(TEST) -- $(FLAGS) -timeout 12h -run TestModel ./test/workloads -model.steps $(STEPS) -rapid.checks 100000

.PHONY: planted
planted: planted-workloads ## Plant defects, one at a time: the models must find each of them
	go run ./test/planted

.PHONY: planted-workloads
planted-workloads: packages $(GOTESTSUM)
	@$(TEST) -- $(FLAGS) -count=1 -timeout 20m -v -run TestPlanted ./test/workloads -model.planted all

.PHONY: faults-few
faults-few: packages apiserver $(GOTESTSUM) ## Make every third request of up, add-shard and certs renew fail in one way
	@$(TEST) $(AGAIN) --packages=./test/faults -- $(FLAGS) -timeout 30m -args -faults=few

.PHONY: faults
faults: packages apiserver $(GOTESTSUM) ## Make every request of up, add-shard and certs renew fail in every way (more than one hour)
	@$(TEST) --format standard-verbose -- $(FLAGS) -timeout 180m ./test/faults -faults=all

.PHONY: e2e-long e2e-day2
e2e-long: build $(GOTESTSUM) ## Run the long end-to-end tests on two nodes (e2e-long-2: the second of three parts)
	@$(E2E) ./test/e2e/long
e2e-day2: build $(GOTESTSUM) ## Run the longest end-to-end tests on two nodes (e2e-day2-2: the second of seven parts)
	@$(E2E) ./test/e2e/day2
e2e-long-%: build $(GOTESTSUM)
	@PART=$*/3 $(E2E) ./test/e2e/long
e2e-day2-%: build $(GOTESTSUM)
	@PART=$*/7 $(E2E) ./test/e2e/day2

# make search SEED=7 repeats the search with the seed 7.
SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
.PHONY: search
search: packages apiserver $(GOTESTSUM) ## Search with random seeds, which are printed: properties, both models, every fault (hours; STEPS=100000)
	@seed=$(SEED); echo "== SEED=$$seed"; \
	RAPID_SEED=$$seed RAPID_CHECKS=10000 go test -count=1 -timeout 2h $(filter-out %/test/model %/test/workloads,$(RANDOM)) && \
	go test -timeout 12h -run TestModel ./test/model -model.steps $(STEPS) -rapid.checks 1000 -rapid.seed $$seed && \
	go test -timeout 12h -run TestModel ./test/workloads -model.steps $(STEPS) -rapid.checks 100000 -rapid.seed $$seed
	$(MAKE) faults

.PHONY: bench
bench: build $(TESTBED) ## Measure speed and memory, as ratios of one run (BENCH="-runs 3 local": only some cases)
	go run ./test/bench $(BENCH)

.PHONY: lint
lint: ## Run gofmt, go vet and a check of habits that make code harder to read
	@unformatted=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go run ./internal/tools/oses -tests darwin/arm64 . ./cmd/... ./internal/...
	go run ./internal/tools/oses windows/amd64 . ./cmd/... ./internal/... # tests do not run there
	go run ./internal/tools/habits

.PHONY: generate
generate: ## Regenerate the generated documents
	go generate ./...

.PHONY: site
site: $(TESTBED) ## Build the docs as a site in bin/site/VERSION (Debian's mkdocs-material), and the list of versions beside it
	@$(TESTBED) packages mkdocs-material
	mkdocs build -f tools/site/mkdocs.yml --strict --clean --site-dir $(CURDIR)/bin/site/$(VERSION)
	@cd bin/site && ls -d */ | tr -d / | sort -rV | awk '{printf "%s{\"version\":\"%s\",\"title\":\"%s\",\"aliases\":[]}", NR == 1 ? "[" : ",\n", $$1, $$1} \
		END {print "]"}' > versions.json
	@cd bin/site && echo "<!doctype html><title>kcpctl</title><meta http-equiv=refresh content=\"0; url=$$(ls -d */ | sort -rV | head -1)\">" > index.html

.PHONY: site-test
site-test: site ## Build the site, and check its links and anchors, what it loads, and whether search finds what users look for
	go run ./test/site bin/site/$(VERSION)

# Releases are built by GoReleaser. It and the program that writes SBOMs have modules that kcpctl does not have.
RELEASE_TOOLS ?= $(CURDIR)/bin/release
# GoReleaser asks git for the URL of the repository, which some clones do not have. Archives for Windows have local times.
# Manifests list artifacts in the order in which they were built: one at a time. go build uses all processors.
GORELEASER = TZ=UTC PATH="$(RELEASE_TOOLS):$$PATH" GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url \
	GIT_CONFIG_VALUE_0=https://github.com/kcpctl/kcpctl \
	$(RELEASE_TOOLS)/goreleaser release --config tools/release/goreleaser.yaml --clean --parallelism 1
# GoReleaser uploads the image, and does not copy it to dist.
ADD_IMAGE = cp bin/image/kcpctl.tar dist/$$(grep -o 'kcpctl_[^ ]*_image\.tar$$' dist/checksums.txt)

.PHONY: release-deps
release-deps: ## Download and build what builds a release (ten minutes, once)
	@go build -o bin/gobuild ./test/gobuild/run
	@cd tools/release && ../../bin/gobuild -o $(RELEASE_TOOLS)/ github.com/goreleaser/goreleaser/v2 ./sbom

.PHONY: snapshot
snapshot: release-deps ## Build all artifacts of a release in dist, without network access (SIGNING_KEY=FILE: and sign them)
	$(GORELEASER) --snapshot $(if $(SIGNING_KEY),,--skip=sign)
	@$(ADD_IMAGE)

.PHONY: artifacts
artifacts: release-deps ## Build the artifacts of the tag of the current commit in dist, as the release has them, without publishing them
	$(GORELEASER) --skip=publish,sign
	@$(ADD_IMAGE)

.PHONY: reproduce
reproduce: release-deps ## Build the artifacts of the current commit twice, at different paths, and compare (COLD=1: compile twice, too)
	./tools/release/reproduce.sh $(RELEASE_TOOLS)

.PHONY: release-test
release-test: $(TESTBED) ## Install the artifacts in dist in fresh directories, and try them
	@$(TESTBED) packages rpm
	cd tools/release && go vet ./... && go test ./...
	./tools/release/test.sh

.PHONY: release
release: release-deps ## Build and sign the tag of the current commit, and upload it as a draft (needs GITHUB_TOKEN and SIGNING_KEY)
	@[ -n "$$SIGNING_KEY" ] || { echo "set SIGNING_KEY to the file of the private key: docs/releasing.md" >&2; exit 1; }
	@tag=$$(git describe --tags --exact-match) && awk -v heading="[$${tag#v}]" \
		'/^## / {found = $$2 == heading; next} found' CHANGELOG.md > bin/notes.md
	@grep -q . bin/notes.md || { echo "CHANGELOG.md has no section for this tag" >&2; exit 1; }
	$(GORELEASER) --release-notes bin/notes.md
	ssh-keygen -Y verify -f tools/release/allowed_signers -I kcpctl -n file -s dist/checksums.txt.sig < dist/checksums.txt

.PHONY: size
size: ## Build kcpctl for Linux on amd64, and fail if it is larger than MAX_SIZE
	@$(GO_BUILD) GOOS=linux GOARCH=amd64 -ldflags "$(LDFLAGS)" -o bin/image/amd64/kcpctl .
	@size=$$(wc -c < bin/image/amd64/kcpctl); echo "kcpctl has $$size of $(MAX_SIZE) bytes"; \
	[ $$size -le $(MAX_SIZE) ] || { ./test/growth.sh $(BASE); exit 1; }

# The commit that growth and quick compare with: that of the upstream branch, or the last one.
BASE ?= $(shell git rev-parse -q --verify '@{upstream}' 2>/dev/null || git rev-parse HEAD)

.PHONY: growth
growth: ## Print how many bytes each package adds to kcpctl since BASE, the largest first
	./test/growth.sh $(BASE)

.PHONY: verify
verify: size lint generate ## Lint, and fail if a generated file is out of date, kcpctl is too large, or a text reads as translated
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
.PHONY: $(TESTBED) $(GOTESTSUM) packages apiserver
$(TESTBED):
	@$(GO_BUILD) -o $@ ./test/testbed

$(GOTESTSUM):
	@mkdir -p bin/tests
	@cd test/gotestsum && go build -o ../../$@ gotest.tools/gotestsum

packages:
	@$(GO_BUILD) ./cmd/... ./internal/...

apiserver: $(TESTBED)
	@$(TESTBED) bin-dir kube-apiserver etcd >/dev/null
