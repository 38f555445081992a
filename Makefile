# Everything here needs Go, a C compiler, make and git; nothing is fetched but Go modules.

# go-nvml calls functions that a driver may lack, so the program must bind lazily: a linker that defaults
# to -z now (Ubuntu's) would make it die at start.
export CGO_LDFLAGS := -Wl,-z,lazy
# The variable replaces Go's default, so that is repeated; the rest silences NVML's deprecations.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GOFLAGS_BUILD := -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT := go run mvdan.cc/gofumpt@v0.12.0

.PHONY: all build demo test check soak bench clean

all: build

build:
	go build $(GOFLAGS_BUILD) -o mig-gpu-mon .

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

clean:
	rm -f mig-gpu-mon
