# aiter for Go. `make help` lists the targets.

export CGO_ENABLED := 0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
VERSION     := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# All packages. Those with the longest tests start first, so that two processors finish together.
PACKAGES := ./jit ./op_tests ./registry ./...

# Folders of Go modules. Programs that do not use OpenTelemetry do not depend on it, so otelaiter is a module of its own.
MODULES := . otelaiter

# Systems for which programs that import this module must compile, besides this machine's. darwin/amd64 is not among them: no file
# depends on macOS and amd64 together. For otelaiter, whose files depend on no system, one other system suffices.
SYSTEMS := linux/arm64 darwin/arm64 windows/amd64

# Tests that need one of these tools fail if it is missing. Without the list they are skipped.
REQUIRE ?= hipcc,llvm-objdump,python3

# `make test` leaves out the tests that take many seconds. `make test SHORT=` and `make test-race` run them.
SHORT ?= -short

# Long tests of compiled code. The race detector checks Go code only, so test-race skips them or runs a sample of their cases.
space := $() $()
KERNEL_TESTS := TestCallInPieces TestCPULevels TestEdges TestLargeSequences TestLongRows TestMachineCode TestMatrixBuilds \
	TestRMSNormLongRows TestRunningProducts TestServingLarge TestUpstreamAssembly TestWide TestWidths

.PHONY: help build release demo test test-race test-aiter test-kernels test-sanitize test-bookworm lint fuzz bench bench-cold rocm rocm-bookworm python cuda browser aarch64 registry executor clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

build: ## build bin/aiterctl, one binary that depends only on glibc
	go build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/aiterctl ./cmd/aiterctl

release: ## make the archives of a release in bin/release: make release VERSION=v0.1.0
	scripts/release.sh $(VERSION)

demo: build ## build the kernels for this machine's best target, run them, print times and errors
	scripts/demo.sh bin/aiterctl

# `make lint` runs go vet. Some packages mostly wait, so one more than there are processors runs at a time.
test: python ## set up hipcc and Python (as root) and run the quick tests, with SHORT= all tests
	AITER_REQUIRE_TOOLS="$(REQUIRE)" go test $(SHORT) -vet=off -p $$(($$(nproc) + 1)) -timeout 40m $(PACKAGES)
	go -C otelaiter test ./...

# A program with the race detector sleeps for a second at its end by default. The tests start hundreds of programs.
test-race: ## run all tests of Go code under the race detector; needs the tools that `make test` installs
	AITER_REQUIRE_TOOLS="$(REQUIRE)" CGO_ENABLED=1 GORACE="atexit_sleep_ms=0 $$GORACE" go test -race -vet=off -timeout 45m $(PACKAGES)
	CGO_ENABLED=1 go -C otelaiter test -race ./...

test-aiter: ## build operators of an AIter checkout and call them on the AMD GPUs: make test-aiter CHECKOUT=DIR
	@test -d "$(CHECKOUT)" || { echo "CHECKOUT is not a folder: name a checkout of github.com/ROCm/aiter"; exit 1; }
	AITER_CHECKOUT="$(abspath $(CHECKOUT))" AITER_REQUIRE_TOOLS=hipcc go test -count=1 ./internal/upstream
	AITER_CHECKOUT="$(abspath $(CHECKOUT))" AITER_REQUIRE_TOOLS=hipcc go test -count=1 -timeout 40m -v -run '^TestUpstream(Types|Assembly)?$$' ./op_tests

test-kernels: ## run the long tests of compiled code, which test-race skips or samples
	AITER_REQUIRE_TOOLS="$(REQUIRE)" go test -timeout 30m -run '^($(subst $(space),|,$(KERNEL_TESTS)))$$' ./op_tests ./registry

test-sanitize: ## run the CPU kernels with ASan, UBSan and guard pages, and with patterns in uninitialised memory
	AITER_REQUIRE_TOOLS="$(REQUIRE)" go test -count=1 -timeout 20m -v -run '^TestCPU(Sanitized|Patterned|OnAarch64)$$' ./op_tests -args -sanitize

test-bookworm: rocm-bookworm build ## run the toolchain's tests and a build with hipcc 5.2
	HIPCC=$(CURDIR)/.toolchain/bookworm/bin/hipcc go test -count=1 ./internal/toolchain
	HIPCC=$(CURDIR)/.toolchain/bookworm/bin/hipcc bin/aiterctl build module_causal_conv1d --arch gfx90a --cache-dir $$(mktemp -d)

lint: ## run gofmt, go vet for this machine and SYSTEMS, and staticcheck
	@files=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$files" || { echo "not gofmt-ed: $$files"; exit 1; }
	for module in $(MODULES); do go -C $$module vet ./... || exit 1; done
	for system in $(SYSTEMS); do echo "go vet for $$system"; GOOS=$${system%/*} GOARCH=$${system#*/} go vet ./... || exit 1; done
	GOOS=windows GOARCH=amd64 go -C otelaiter vet ./...
	for module in $(MODULES); do (cd $$module && go run $(STATICCHECK) ./...) || exit 1; done

fuzz: ## run each fuzz target for 5 s, or for FUZZTIME
	scripts/fuzz.sh

bench: ## run the benchmarks of the host side
	go test -run '^$$' -bench . -benchmem ./registry ./internal/ffi ./jit/...

bench-cold: build ## compare cold builds for five GPU targets with plain hipcc (needs `make rocm`)
	scripts/bench-cold.sh bin/aiterctl "$${HIPCC:-.toolchain/bin/hipcc}"

rocm: ## install hipcc as .toolchain/bin/hipcc; needs root but no AMD GPU, takes under two minutes
	scripts/rocm-root.sh

rocm-bookworm: ## install hipcc 5.2 of Debian 12 as .toolchain/bookworm/bin/hipcc (as root)
	AITER_ROCM_SUITE=bookworm scripts/rocm-root.sh .toolchain/bookworm/rocm

python: ## install hipcc, and python3 with torch and tvm_ffi for the tests (as root)
	scripts/rocm-root.sh --with-python

cuda: ## install nvcc as .toolchain/bin/nvcc; needs root and 5 GB but no NVIDIA GPU
	scripts/cuda-root.sh

browser: ## install chromium for the test of the page of `aiterctl bench --html` (as root)
	command -v chromium >/dev/null || { apt-get update -q && apt-get install -yq --no-install-recommends chromium; }

aarch64: ## install a compiler and an emulator for the test of the aarch64 kernels (as root)
	command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null || { apt-get update -q && \
		apt-get install -yq --no-install-recommends g++-aarch64-linux-gnu qemu-user; }

FLEET := $(CURDIR)/.toolchain/fleet/bin
registry: ## install a registry, crane and cosign in .toolchain/fleet/bin for the tests of sets; takes about 5 minutes
	mkdir -p $(FLEET)
	for tool in github.com/distribution/distribution/v3/cmd/registry@v3.1.2 github.com/google/go-containerregistry/cmd/crane@v0.22.1 \
		github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3; do name=$${tool##*/}; \
		test -x $(FLEET)/$${name%@*} || GOBIN=$(FLEET) go install -trimpath -ldflags='-s -w' $$tool || exit 1; done

executor: ## install buildbox-casd, a server of the Remote Execution API, for the tests of build farms (as root)
	scripts/executor-root.sh

clean: ## remove bin/, but not the installed toolchains
	rm -rf bin
