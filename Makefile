# `make run` and `make test` do everything; Go is all they need.
#
# hutch, hutch-agent, hutch-runsc and hutch-gofer are static programs that are
# found side by side. hutch-runsc is gVisor, at the version in go.mod: it takes a
# minute to build, once.

GO      ?= go
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
BUILD   := CGO_ENABLED=0 $(GO) build -trimpath
LDFLAGS := -s -w -X main.commit=$(COMMIT)
# The race detector needs a C compiler.
RACE    := $(shell command -v gcc >/dev/null && echo -race)
SOURCES := $(shell find . -name '*.go' -not -path './bin/*') go.mod go.sum

.PHONY: run build test test-vm soak lint bench clean go

run: build
	@bin/hutch doctor || true
	@bin/hutch serve $(ARGS)

build: bin/hutch bin/hutch-agent bin/hutch-runsc bin/hutch-gofer

bin/hutch: $(SOURCES) | go
	$(BUILD) -ldflags '$(LDFLAGS)' -o $@ ./cmd/hutch

bin/hutch-agent: $(SOURCES) | go
	$(BUILD) -ldflags '$(LDFLAGS)' -o $@ ./cmd/hutch-agent

bin/hutch-runsc bin/hutch-gofer: bin/%: $(wildcard cmd/hutch-runsc/*.go cmd/hutch-gofer/*.go internal/driver/gvisor/gofer/*.go internal/driver/gvisor/filter/*.go) go.mod | go
	$(BUILD) -ldflags '-s -w' -o $@ ./cmd/$*

go:
	@command -v $(GO) >/dev/null || { \
	  echo 'Go is missing. Install it with `apt-get install golang-go`, or from https://go.dev/dl (1.26 or newer).' >&2; exit 1; }

# Tests build and use the programs in bin. What needs root is skipped without
# it, and what concerns ordinary users runs as one when root runs the tests.
test: build
	@[ -n "$(RACE)" ] || echo 'gcc is missing: testing without the race detector (apt-get install gcc)'
	$(GO) vet ./...
	$(GO) test $(TESTFLAGS) ./internal/driver/gvisor/filter # is empty with -race
	$(GO) test $(RACE) -timeout 20m $(TESTFLAGS) ./...

# On a kernel with control groups of version 2, in qemu: apt-get install
# qemu-system-x86, and test/vm/kernel fetches the kernel.
test-vm: build
	test/vm/kernel >/dev/null
	$(GO) test -tags vm -timeout 20m -v ./test/vm

# The work of an hour in a quarter of one, with the daemon killed in between,
# with everything else that can go wrong, and with too little memory; `make test`
# has half a minute of each. Then the daemon is killed before every single step of
# what it does, of which `make test` has one each.
soak: build
	$(GO) test -count 1 -timeout 2h -v ./test/soak -soak 15m -chaos 10m -shortage 3m -callers 16 $(ARGS)
	$(GO) test -count 1 -timeout 2h -v -parallel 6 ./test/hibernate -run TestKilledAtEveryStep -steps 0

lint: | go
	@out=$$(gofmt -l . | grep -v '^bin/'); [ -z "$$out" ] || { echo "gofmt these: $$out" >&2; exit 1; }
	$(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

bench: build
	$(GO) run ./bench $(ARGS)

clean:
	rm -rf bin
