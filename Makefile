# aiter for Go. `make help` lists what there is.

export CGO_ENABLED := 0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
VERSION     := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Real compilers that the tests may not do without.
REQUIRE ?= hipcc,llvm-objdump,python3

.PHONY: help build demo test test-race test-sanitize test-bookworm lint fuzz bench bench-cold rocm rocm-bookworm python cuda browser aarch64 clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

build: ## bin/aiterctl, one binary that needs glibc alone
	go build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/aiterctl ./cmd/aiterctl

demo: build ## build the kernels for the best target found, run them, show times and errors
	scripts/demo.sh bin/aiterctl

test: python ## set up hipcc and Python (as root) and run the tests
	AITER_REQUIRE_TOOLS="$(REQUIRE)" go test -timeout 40m ./...

test-race: ## the same under the race detector; needs what `make test` has set up
	AITER_REQUIRE_TOOLS="$(REQUIRE)" CGO_ENABLED=1 go test -race -timeout 45m ./...

test-sanitize: ## the CPU kernels under ASan and UBSan between guard pages, and with patterns in uninitialised memory
	AITER_REQUIRE_TOOLS="$(REQUIRE)" go test -count=1 -timeout 20m -v -run '^TestCPU(Sanitized|Patterned|OnAarch64)$$' ./op_tests -args -sanitize

test-bookworm: rocm-bookworm build ## the toolchain's tests and a build with hipcc 5.2
	HIPCC=$(CURDIR)/.toolchain/bookworm/bin/hipcc go test -count=1 ./internal/toolchain
	HIPCC=$(CURDIR)/.toolchain/bookworm/bin/hipcc bin/aiterctl build module_causal_conv1d --arch gfx90a --cache-dir $$(mktemp -d)

lint: ## gofmt, go vet, staticcheck
	@files=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$files" || { echo "not gofmt-ed: $$files"; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...

fuzz: ## each fuzz target for a short while
	scripts/fuzz.sh

bench: ## the benchmarks of the host side
	go test -run '^$$' -bench . -benchmem ./registry ./internal/ffi ./jit/...

bench-cold: build ## cold builds for five GPU targets, beside plain hipcc in the same run (needs `make rocm`)
	scripts/bench-cold.sh bin/aiterctl "$${HIPCC:-.toolchain/bin/hipcc}"

rocm: ## a real hipcc without an AMD GPU: .toolchain/bin/hipcc (as root, under two minutes)
	scripts/rocm-root.sh

rocm-bookworm: ## Debian 12's hipcc 5.2: .toolchain/bookworm/bin/hipcc
	AITER_ROCM_SUITE=bookworm scripts/rocm-root.sh .toolchain/bookworm/rocm

python: ## python3 with torch and tvm_ffi in the same root, for the interop tests
	scripts/rocm-root.sh --with-python

cuda: ## nvcc without an NVIDIA GPU: .toolchain/bin/nvcc (as root, 5 GB)
	scripts/cuda-root.sh

browser: ## chromium, for the test that looks at the page of `aiterctl bench --html` (as root)
	command -v chromium >/dev/null || { apt-get update -q && apt-get install -yq --no-install-recommends chromium; }

aarch64: ## a compiler and an emulator for the aarch64 kernels' test (as root)
	command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null || { apt-get update -q && \
		apt-get install -yq --no-install-recommends g++-aarch64-linux-gnu qemu-user; }

clean: ## what was built here; the toolchains stay
	rm -rf bin
