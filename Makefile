# Everything here but release needs Go, a C compiler, make and git; nothing is fetched but Go modules.

# go-nvml calls functions that a driver may lack, so the program must bind lazily: a linker that defaults
# to -z now (Ubuntu's) would make it die at start.
export CGO_LDFLAGS := -Wl,-z,lazy
# The variable replaces Go's default, so that is repeated; the rest silences NVML's deprecations.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
GOFLAGS_BUILD = -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT := go run mvdan.cc/gofumpt@v0.12.0

.PHONY: all build install demo test check soak bench release release-check clean FORCE

all: build

build:
	go build $(GOFLAGS_BUILD) -o mig-gpu-mon .

PREFIX := /usr/local
DESTDIR :=

# The plain copying of what make has built, for install.sh and packages. Files take their names when they are whole,
# so that a program that runs keeps the one it has; and what is there already is left alone.
install:
	@test -x mig-gpu-mon || { echo "make install: there is no mig-gpu-mon yet: run make" >&2; exit 1; }
	@set -e; bin="$(DESTDIR)$(PREFIX)/bin"; man="$(DESTDIR)$(PREFIX)/share/man/man1"; new=.mig-gpu-mon.$$$$; \
	if test -x "$$bin/mig-gpu-mon" && cmp -s mig-gpu-mon "$$bin/mig-gpu-mon" && cmp -s mig-gpu-mon.1 "$$man/mig-gpu-mon.1"; then \
		echo "$$bin/mig-gpu-mon is up to date"; exit 0; \
	fi; \
	trap 'rm -f "$$bin/$$new" "$$man/$$new"' EXIT; trap 'exit 1' HUP INT TERM; \
	install -d "$$bin" "$$man"; \
	install -m 755 mig-gpu-mon "$$bin/$$new"; \
	install -m 644 mig-gpu-mon.1 "$$man/$$new"; \
	mv -fT "$$man/$$new" "$$man/mig-gpu-mon.1"; \
	mv -fT "$$bin/$$new" "$$bin/mig-gpu-mon"

demo: build
	./mig-gpu-mon -demo

# The recording that is built in, of the machine in testdata/scenarios/demo.txt. Takes a minute and a half.
demo.jsonl.gz: testdata/scenarios/demo.txt
	go test -count=1 -run TestMakeDemo -make-demo $@ .

test: check
	go test -race -count=1 -parallel 12 ./... # most of them wait for ticks, not for a core

check:
	go vet ./...
	$(STATICCHECK) ./...
	@unformatted=$$($(GOFUMPT) -l .); if [ -n "$$unformatted" ]; then echo "gofumpt would change:"; echo "$$unformatted"; exit 1; fi

# Hours of work for the program in half an hour: 100,000 ticks of the dashboard, 10,000 of the nastiest machine for
# each seed, the latter with the race detector.
soak:
	go test -count=1 -run TestSoak -soak -v -timeout 60m . | grep -v '^ *[=]'
	go test -race -count=1 -run TestNasty -soak -v -timeout 120m . | grep -v '^ *[=]'

bench: build
	@go test -count=1 -run TestBudgets -budgets -timeout 20m . | grep -v -e '^ok' -e '^PASS'

# For machines with glibc 2.17 or newer, see release/pins.h; the same bytes from the same Go, gcc and commit. Needs
# Debian's gcc-aarch64-linux-gnu and libc6-dev-arm64-cross. NVIDIA's header asks for its notice too.
release: dist/mig-gpu-mon-linux-amd64 dist/mig-gpu-mon-linux-arm64
	cd dist && sha256sum $(^F) > sha256sums
	install -m 644 "$$(go env GOROOT)/LICENSE" dist/LICENSE-go
	go list -deps -f '{{with .Module}}{{.Path}} {{.Dir}}{{end}}' . | sort -u | while read -r path dir; do \
		install -m 644 "$$dir/LICENSE" dist/LICENSE-$${path##*/} || exit; done
	sed '/^ \*\/$$/q' "$$(go list -f '{{.Dir}}' github.com/NVIDIA/go-nvml/pkg/nvml)/nvml.h" > dist/LICENSE-nvml.h
	go test -count=1 -run TestDist .

# An old glibc has libpthread and libdl apart; with a new one the linker would leave them out. A build ID differs by folder.
dist/mig-gpu-mon-linux-%: export CGO_CFLAGS += -include "$(CURDIR)/release/pins.h"
dist/mig-gpu-mon-linux-%: export CGO_LDFLAGS += -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--wrap=__libc_start_main
dist/mig-gpu-mon-linux-%: LDFLAGS += -buildid=
dist/mig-gpu-mon-linux-amd64: export CC := x86_64-linux-gnu-gcc
dist/mig-gpu-mon-linux-arm64: export CC := aarch64-linux-gnu-gcc
dist/mig-gpu-mon-linux-%: FORCE
	mkdir -p dist
	CGO_ENABLED=1 GOOS=linux GOARCH=$* go build $(GOFLAGS_BUILD) -o $@ .

# Needs the network, qemu-user and some minutes.
release-check: release
	release/check

clean:
	rm -rf mig-gpu-mon dist
