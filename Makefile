# `make run` builds Hutch and starts the server, `make install` puts it on the
# PATH, `make test` tests it. Go is all they need.
#
# hutch, hutch-agent, hutch-runsc and hutch-gofer are static programs that are
# found side by side. hutch-runsc is gVisor, at the version in go.mod: it takes a
# minute to build, once.

# `make module PATH=example.com/you/hutch` means the path of the Go module.
# The shell's PATH is then the one that make was started with.
ifeq ($(origin PATH),command line)
MODULE := $(PATH)
override PATH := $(shell /usr/bin/tr '\0' '\n' </proc/$$PPID/environ | /usr/bin/sed -n 's/^PATH=//p')
endif

GO      ?= go
COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
BUILD   := CGO_ENABLED=0 $(GO) build -trimpath
# Checks have the flags of the build: then packages are compiled once for both.
FLAGS   := CGO_ENABLED=0 GOFLAGS=-trimpath
CHECK   := $(FLAGS) $(GO)
LDFLAGS := -s -w -X main.commit=$(COMMIT)
NEEDS   := $(shell sed -n 's/^go /Go /p' go.mod)
# The race detector needs a C compiler.
RACE    := $(shell command -v gcc >/dev/null && echo -race)
ALONE   := badinput console escape hibernate network soak
# The suites that only drive the built programs, the longest first.
OUTSIDE := fleet builds images cli sdk docs install bulk conversation console conformance openapi soak
SPACE   := $(subst ,, )
SOURCES := $(shell find . -name '*.go' -not -path './bin/*' -not -path '*/node_modules/*') go.mod go.sum $(shell find internal/console/dist -type f)

# Where `make install` puts the programs: side by side, as they look for each
# other there. DESTDIR is for those who make packages.
PREFIX  ?= /usr/local
BINDIR  := $(DESTDIR)$(PREFIX)/bin
SHARE   := $(DESTDIR)$(PREFIX)/share
PROGRAMS := hutch hutch-agent hutch-runsc hutch-gofer
COMPLETIONS := $(SHARE)/bash-completion/completions/hutch $(SHARE)/zsh/site-functions/_hutch $(SHARE)/fish/vendor_completions.d/hutch.fish

# What `make dist` makes, and for which machines.
DIST  ?= bin/dist
ARCHS ?= amd64 arm64

.PHONY: run build console dist install uninstall module test test-full test-vm test-kubernetes test-dockerfiles compat compat-builds soak lint reference bench clean go

run: build
	@bin/hutch doctor || true
	@bin/hutch serve $(ARGS)

build: $(addprefix bin/,$(PROGRAMS))

bin/hutch: $(SOURCES) | go
	$(BUILD) -ldflags '$(LDFLAGS)' -o $@ ./cmd/hutch

bin/hutch-agent: $(SOURCES) | go
	$(BUILD) -ldflags '$(LDFLAGS)' -o $@ ./cmd/hutch-agent

bin/hutch-runsc bin/hutch-gofer: bin/%: $(wildcard cmd/hutch-runsc/*.go cmd/hutch-gofer/*.go internal/driver/gvisor/gofer/*.go internal/driver/gvisor/filter/*.go) go.mod | go
	$(BUILD) -ldflags '-s -w' -o $@ ./cmd/$*

# Go 1.21 and newer fetch the version in go.mod by themselves. Older ones, such as
# those of Debian 12 and Ubuntu 22.04, cannot even read go.mod.
go:
	@command -v $(GO) >/dev/null || { \
	  echo 'Go is missing. Hutch needs $(NEEDS) or newer; the golang-go of most distributions is older.' >&2; \
	  echo 'Get Go from https://go.dev/dl, or on Debian 12: apt-get install -t bookworm-backports golang-go (docs/install.md).' >&2; exit 1; }
	@$(GO) list -m >/dev/null 2>&1 || { \
	  echo "$$($(GO) version 2>&1 | head -1) cannot build Hutch, which needs $(NEEDS) or newer." >&2; \
	  echo 'Get Go from https://go.dev/dl (docs/install.md says how). If it is new enough, `$(GO) list -m` says what is wrong.' >&2; exit 1; }

# The console, which is in the program: internal/console/dist is made of web/ and checked in, so that Hutch needs Go alone. This needs Node.
console:
	npm ci --prefix web --no-audit --no-fund --loglevel=error
	npm run --silent --prefix web build

# Archives with deploy/install.sh, Debian packages, lists of what is in the
# programs, and SHA256SUMS: docs/install.md.
dist: build
	@for a in $(ARCHS); do \
	  mkdir -p bin/linux-$$a && for p in $(PROGRAMS); do \
	    flags='-s -w'; case $$p in hutch | hutch-agent) flags='$(LDFLAGS)';; esac; \
	    echo "bin/linux-$$a/$$p" && GOOS=linux GOARCH=$$a $(BUILD) -ldflags "$$flags" -o bin/linux-$$a/$$p ./cmd/$$p || exit 1; done || exit 1; done
	@rm -rf $(DIST)
	$(GO) run ./tools/dist -out $(DIST) $(foreach a,$(ARCHS),$(a)=bin/linux-$(a))

# A program that runs keeps its old file: each file is written beside and renamed.
install: build
	@mkdir -p $(BINDIR)
	@for p in $(PROGRAMS); do cp bin/$$p $(BINDIR)/.$$p.new && chmod 0755 $(BINDIR)/.$$p.new && mv -f $(BINDIR)/.$$p.new $(BINDIR)/$$p || exit 1; done
	@mkdir -p $(dir $(COMPLETIONS))
	@bin/hutch completion bash >$(word 1,$(COMPLETIONS))
	@bin/hutch completion zsh >$(word 2,$(COMPLETIONS))
	@bin/hutch completion fish >$(word 3,$(COMPLETIONS))
	@chmod 0644 $(COMPLETIONS)
	@echo 'installed $(PROGRAMS) in $(BINDIR), and completions for bash, zsh and fish'

uninstall:
	@[ -e $(BINDIR)/hutch ] || { echo 'Hutch is not in $(BINDIR): give the PREFIX of the installation, as in `make uninstall PREFIX=~/.local`' >&2; exit 1; }
	rm -f $(addprefix $(BINDIR)/,$(PROGRAMS)) $(COMPLETIONS)
	@echo 'Removed. Data folders stay, and so do servers and sandboxes that still run: `bin/hutch down` ends them.'

module: | go
	@$(GO) run ./tools/module $(MODULE)

# Tests build and use the programs in bin. What needs root is skipped without
# it, and what concerns ordinary users runs as one when root runs the tests.
# The suites in OUTSIDE only drive the programs: the race detector, which all
# others have, would see nothing of them. Those in ALONE fill a machine each: they
# run one after the other. Of the others, those in test take longest, and begin
# first, so that none is at work alone at the end. What fails is run once more by
# itself, unless much fails or the race detector found something; what passes only
# then is listed at the end, and counts as a fault. Programs that tests build
# get the flags of the build, because packages are compiled with those already.
RACING  = -vet=off $(RACE) -ldflags=-w -exec 'env $(FLAGS)' -timeout 20m
PLAIN   = -vet=off -timeout 20m
GOTESTS = $(GO) run gotest.tools/gotestsum@v1.13.0 --format standard-quiet --hide-summary skipped \
	--rerun-fails=1 --rerun-fails-max-failures=10 --rerun-fails-abort-on-data-race --rerun-fails-report=$(RERUNS)/$(1)
RERUNS  = bin/tests-run-again

test: build
	@[ -n "$(RACE)" ] || echo 'gcc is missing: testing without the race detector (apt-get install gcc)'
	$(CHECK) vet ./...
	$(CHECK) test $(TESTFLAGS) ./internal/driver/gvisor/filter # is empty with -race
	@rm -rf $(RERUNS) && mkdir -p $(RERUNS)
	result=0; \
	$(FLAGS) $(call GOTESTS,outside) --packages="$(addprefix ./test/,$(filter-out $(ALONE),$(OUTSIDE)))" -- $(PLAIN) $(TESTFLAGS) || result=1; \
	$(call GOTESTS,together) --packages="$$($(GO) list ./test/... ./... | grep -vE '/test/($(subst $(SPACE),|,$(ALONE) $(OUTSIDE)))$$' | tr '\n' ' ')" -- $(RACING) $(TESTFLAGS) || result=1; \
	$(call GOTESTS,alone) --packages="$(addprefix ./test/,$(filter-out $(OUTSIDE),$(ALONE)))" -- $(RACING) -p 1 $(TESTFLAGS) || result=1; \
	$(FLAGS) $(call GOTESTS,alone-outside) --packages="$(addprefix ./test/,$(filter $(OUTSIDE),$(ALONE)))" -- $(PLAIN) -p 1 $(TESTFLAGS) || result=1; \
	find $(RERUNS) -type f -size +0 -exec echo 'failed once, and passed when run again:' ';' -exec cat {} +; exit $$result

# Every combination of suite, runtime and user, of which `make test` has those that differ.
test-full:
	HUTCH_TEST_FULL=1 $(MAKE) test

# The suites of other products' clients, from checkouts that the caller names,
# and Harbor's tasks: docs/compatibility.md. UPDATE=1 writes what has come out.
compat: build
	npm ci --prefix test/compat/suite --no-audit --no-fund --loglevel=error
	E2B_SUITE=$(E2B_SUITE) $(GO) test -tags compat -count=1 -timeout 60m -v -run TestSuite ./test/compat
	SWEREX_SUITE=$(SWEREX_SUITE) $(GO) test -tags compat -count=1 -timeout 30m -v -run 'TestSWEReXSuite|TestLangChainSuite|TestConcurrentCommands' ./test/compat
	COMPUTESDK_SUITE=$(COMPUTESDK_SUITE) $(GO) test -tags compat -count=1 -timeout 30m -v -run TestComputeSDKSuite ./test/compat
	test/compat/harbor/install
	$(GO) test -tags compat -count=1 -timeout 45m -v -run TestHarbor ./test/compat
	$(GO) test -tags compat -count=1 -timeout 60m -v -run 'TestInspect|TestPythonVersions' ./test/sdk

# On a kernel with control groups of version 2, in qemu: apt-get install
# qemu-system-x86, and test/vm/kernel fetches the kernel.
test-vm: build
	test/vm/kernel >/dev/null
	$(CHECK) test -vet=off -tags vm -timeout 20m -v ./test/vm

# The manifests in a real cluster: etcd, API server, scheduler, containerd, kubelet, in namespaces of their own. Needs root, and
# apt-get install containerd runc postgresql tini. The first run compiles Kubernetes, which takes ten minutes or more, and keeps
# it in ~/.cache/hutch. Helm says whether the chart is what its plain manifests are.
test-kubernetes: build
	HUTCH_KUBERNETES_REPORT=$(CURDIR)/test/kubernetes/REPORT.md $(GO) test -tags kubernetes -count 1 -timeout 90m -v ./test/kubernetes

# The work of an hour in a quarter of one, with the daemon killed in between,
# with everything else that can go wrong, and with too little memory; `make test`
# has half a minute of each. Then the daemon is killed before every single step of
# what it does, of which `make test` has one each.
soak: build
	$(GO) test -count 1 -timeout 2h -v ./test/soak -soak 15m -chaos 10m -shortage 3m -callers 16 $(ARGS)
	$(GO) test -count 1 -timeout 2h -v -parallel 6 ./test/hibernate -run TestKilledAtEveryStep -steps 0

lint: | go
	@out=$$(gofmt -l . | grep -vE '^bin/|(^|/)node_modules/'); [ -z "$$out" ] || { echo "gofmt these: $$out" >&2; exit 1; }
	$(CHECK) vet ./...
	$(CHECK) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	@if [ -n "$$CI" ] || [ -d sdk/typescript/node_modules ]; then npm run --silent --prefix sdk/typescript check; \
	else echo 'sdk/typescript is not checked: npm ci --prefix sdk/typescript' >&2; fi
	@if [ -n "$$CI" ] || [ -d web/node_modules ]; then npm run --silent --prefix web check && npm run --silent --prefix web compare; \
	else echo 'web is not checked: npm ci --prefix web' >&2; fi

# The API references of the SDKs, in bin/reference.
reference:
	npm run --silent --prefix sdk/typescript reference -- --out $(CURDIR)/bin/reference/typescript
	sdk/python/tools/reference.sh $(CURDIR)/bin/reference/python

bench: build
	$(GO) run ./bench $(ARGS)

# compat-builds builds the Dockerfiles of test/builds with Docker's own engine as well, and writes what differs.
compat-builds: build
	HUTCH_COMPAT_BUILDS=$(CURDIR)/test/builds/COMPARED.md $(GO) test ./test/builds -run TestAsDockerDoes -count 1 -timeout 20m

# test-dockerfiles builds the Dockerfiles of templates and of examples/runners with packages of their registries, and uses
# the images. It needs root, and apt-get install debootstrap npm.
test-dockerfiles: build
	HUTCH_TEST_DOCKERFILES=1 $(CHECK) test ./test/builds -run TestDockerfiles -count 1 -timeout 60m -v

clean:
	rm -rf bin
