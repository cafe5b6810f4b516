# SPDX-License-Identifier: Apache-2.0
# Needs Go, and git for check-generated; every tool is built from its own module under internal/tools.

SHELL         := /bin/bash
.SHELLFLAGS   := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS     += --no-print-directory

DIST := build/otelcol-weir
OCB  := go tool -modfile=internal/tools/ocb/go.mod builder --config builder-config.yaml
LINT := go tool -modfile=internal/tools/golangci/go.mod golangci-lint
E2E  := go test -tags e2e -count=1 -p 1
BROWSER := extension/walstorageextension/internal/browsertest

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##### build and run

.PHONY: build
build: $(DIST)/go.sum ## build bin/otelcol-weir, in seconds when the caches are warm
	@$(OCB) --skip-generate --skip-get-modules 2>&1 | { grep -v '	INFO	' || true; }
	@mkdir -p bin && cp -f $(DIST)/otelcol-weir bin/.otelcol-weir && mv -f bin/.otelcol-weir bin/otelcol-weir
	@echo built bin/otelcol-weir

# The distribution's own package and go.mod follow from what it is made of, not from our code.
$(DIST)/go.sum: builder-config.yaml go.mod go.sum
	@rm -rf $(DIST) && mkdir -p $(dir $(DIST))
	$(OCB) --skip-compilation
	@touch $@

.tools/telemetrygen: internal/tools/telemetrygen/go.sum
	@mkdir -p .tools
	go build -o $@ -modfile=internal/tools/telemetrygen/go.mod github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen
	@touch $@

.PHONY: run
run: build ## build and start the demo configuration; everything it writes is under ./data
	@mkdir -p data
	@echo
	@echo "OTLP/gRPC on localhost:4317, OTLP/HTTP on localhost:4318. Send something from another terminal:"
	@echo
	@echo "  curl -i localhost:4318/v1/logs -H 'Content-Type: application/json' \\"
	@echo "       -d '{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[{\"body\":{\"stringValue\":\"hello\"}}]}]}]}'"
	@echo "  make demo-send                                            # a stock client: telemetrygen"
	@echo
	@echo "What arrived: data/out/telemetry.jsonl. The log: data/wal. State: http://localhost:55690/"
	@echo "Metrics: http://localhost:8888/metrics. Health: http://localhost:13133/health/status. Stop: Ctrl-C."
	@echo
	@exec bin/otelcol-weir --config testdata/config/demo.yaml

.PHONY: demo-send
demo-send: .tools/telemetrygen ## send logs, traces and metrics to a running `make run` with telemetrygen
	.tools/telemetrygen logs --otlp-insecure --otlp-endpoint localhost:4317 --logs 500 --rate 0
	.tools/telemetrygen traces --otlp-insecure --otlp-endpoint localhost:4317 --traces 200 --rate 0
	.tools/telemetrygen metrics --otlp-insecure --otlp-http --otlp-endpoint localhost:4318 --metrics 200 --rate 0

.PHONY: demo
demo: build .tools/telemetrygen ## send real data, kill the collector, watch the log keep it and drain
	@go run ./e2e/demo

##### check

.PHONY: test
test: lint check-generated unit race test-tools e2e-short ## everything CI runs

.PHONY: unit
unit: ## unit tests, ten thousand power cuts, and what the race detector would distort: allocations
	go test -timeout 30m ./...

.PHONY: race
race: ## unit tests with the race detector, and with fewer power cuts
	CRASH_N=2000 go test -race -timeout 30m ./...

.PHONY: lint
lint: ## go.mod is tidy, go vet and golangci-lint
	go mod tidy -diff
	go vet -tags e2e ./...
	go -C $(BROWSER) vet -tags browser ./...
	$(LINT) run --allow-parallel-runners ./...

.PHONY: fmt
fmt: ## format the code
	$(LINT) fmt ./...

.PHONY: generate
generate: ## regenerate telemetry code and documentation from every metadata.yaml
	go generate ./...

.PHONY: check-generated
check-generated: ## fail when generated files are stale
	@sum() { git ls-files -co --exclude-standard '*generated_*' '*documentation.md' '*README.md' | sort -u | xargs cksum; }; \
	before=$$(sum); go generate ./... ; after=$$(sum); \
	if [ "$$before" != "$$after" ]; then \
		diff <(echo "$$before") <(echo "$$after") || true; \
		echo "generated files were stale; they are fresh now: commit them" >&2; exit 1; \
	fi
	@echo generated files are fresh

.PHONY: test-tools
test-tools: ## tests that need modules of their own: dashboard and alerts against the registry
	go -C internal/tools/observe test -count=1 ./...

.PHONY: e2e
e2e: build .tools/telemetrygen ## the built collector as a child process; kills it KILLS (10) times under load
	WEIR_E2E_KILLS=$(or $(KILLS),10) $(E2E) -timeout 30m -v ./e2e/... ./bench/...

.PHONY: e2e-short
e2e-short: build .tools/telemetrygen
	$(E2E) -timeout 30m ./e2e/... ./bench/...

.PHONY: e2e-browser
e2e-browser: build ## the status page in Chromium, which has to be installed; pictures go to WEIR_SCREENSHOTS if set
	go -C $(BROWSER) test -tags browser -count=1 -timeout 10m ./...

.PHONY: soak
soak: build ## load for FOR (10m) with a sink that comes and goes: disk, memory, files, goroutines
	WEIR_E2E_SOAK=$(or $(FOR),10m) $(E2E) -timeout 0 -v -run G03 ./e2e

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (30s)
	@for pkg in $$(go list ./...); do \
		for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(or $(FUZZTIME),30s) $$pkg; \
		done; \
	done

.PHONY: crash
crash: ## N (100000) simulated power cuts, at every file-system call of the log
	CRASH_N=$(or $(N),100000) go test ./internal/journal -run TestC07 -count=1 -timeout 0 -v

.PHONY: bench
bench: ## the log against references in the same run, some minutes; ARGS="-only append" for parts
	go run ./bench $(ARGS)

.PHONY: bench-memory
bench-memory: build ## what the built collector holds under overload, some minutes
	go run ./bench/memory $(ARGS)

.PHONY: bench-parts
bench-parts: ## the benchmarks beside the code, for benchstat (go tool -modfile=internal/tools/go.mod benchstat)
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: clean
clean: ## remove what make built and the demo's data
	rm -rf bin build data .tools
