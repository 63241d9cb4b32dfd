# All recipes. `./justw` (or `just`) lists them.

set shell := ["bash", "-euo", "pipefail", "-c"]

# "$@" keeps an argument with spaces, such as the name of a row, in one piece.
set positional-arguments := true

# The pinned tools come first in PATH.
export PATH := `. hack/env && echo "$PATH"`

[private]
default:
    @just --justfile {{ quote(justfile()) }} --list --unsorted

# Run a storm of Events with and without a policy on a real API server (2 min; --keep keeps it, --node installs the chart, root)
demo *ARGS:
    @hack/e2e demo "$@"

# Run the demo and draw the picture of README.md from its samples (3 min)
demo-picture:
    @hack/e2e demo --samples docs/images/demo.csv
    @hack/charts

# Run the checks of `ci`, unit tests and end-to-end tests (18 min, 40 the first time)
test:
    @hack/test

# Run the other tests of each change: end-to-end tests that measure time, several API servers, a node, faults (root, 15 min)
test-alone:
    @hack/test-alone

# Check formatting, lint, generated files, dependencies, gates, vocabulary, instruction counts (2 min)
ci: && fmt-check lint built-checks
    @hack/tools

# The checks of `ci` after lint. hack/test runs them beside the end-to-end tests.
[private]
built-checks: check-generated deny gates prose instructions

# Run unit, property and router tests without a cluster; arguments are passed to the tests, e.g. a name (10 s)
[group('tiers')]
test-unit *ARGS:
    @hack/unit "$@"

# Run NUMBER (1,000,000) random lives of the engine in its simulated world, from SEED (random) (2 min)
[group('tiers')]
test-lives *ARGS:
    @hack/lives "$@"

# Run end-to-end tests on three clusters, or with arguments for the tests, e.g. a name, on one (13 min; --kubernetes MINOR: on another version than the newest; then --short: 4; --alone: those that measure time, 6; --all)
[group('tiers')]
test-e2e *ARGS:
    @hack/e2e test "$@"

# Test with three API servers, each with its own way to the webhook; arguments as for test-e2e (root, 10 min; --long: two tests of ten minutes)
[group('tiers')]
test-apiservers *ARGS:
    @hack/e2e apiservers "$@"

# Test install, upgrade, restart and uninstall of the chart on a real node under a storm (root, 14 min; --short: 4; --load [--repeat N] [ROW...]: restarts and kills on a busy machine, 2 min each)
[group('tiers')]
test-node *ARGS:
    @hack/e2e node "$@"

# Test helm upgrade to the chart and image of another COMMIT and back, during a storm on a real node (root, 4 min, and 7 to build that image)
[group('tiers')]
test-upgrade COMMIT:
    @hack/upgrade-from "$@"

# Test faults of the webhook and of the control plane on a real node, one row each (root, 40 min; --short: 6; or names of rows)
[group('tiers')]
test-faults *ARGS:
    @hack/e2e faults "$@"

# Test squelch for arm64, cross-compiled and emulated: unit tests, replay, TLS and end-to-end tests (4 min; or names of end-to-end tests)
[group('tiers')]
test-arm64 *ARGS:
    @hack/arm64 "$@"

# Test on each MINOR version of Kubernetes (1.30 to 1.37), end to end and, as root, the short table on a node, and write docs/kubernetes-versions.md (20 min per version)
[group('tiers')]
test-matrix *MINOR:
    @hack/matrix "$@"

# Test every kind of client under every kind of policy with every kind of fault, and stops of the process, one row per combination (45 min)
[group('tiers')]
test-nothing-lost:
    @hack/e2e nothing-lost

# Test that a stopped and continued process loses nothing: RUNS (20) stops of each length, one table (1 to 2 min per run)
[group('tiers')]
test-stops *RUNS:
    @hack/e2e stops "$@"

# Test hostile callers and hostile tenants, one row each (20 min; or names of rows)
[group('tiers')]
test-hostile *ARGS:
    @hack/e2e hostile "$@"

# Test emitters of other libraries and languages, judged by the API server's audit log, one row each (5 min, 15 the first time; --write: writes docs/emitters.md; or names of rows)
[group('tiers')]
test-oracle *ARGS:
    @hack/e2e oracle "$@"

# Test what consumers of Events see of a storm with and without a policy, and that a collector gets every exported Event (6 min, 13 the first time; --write: writes docs/consumers.md)
[group('tiers')]
test-consumers *ARGS:
    @hack/e2e consumers "$@"

# Compare the match condition of the webhook with the policies on WRITES (1,000,000) random writes, by the API server's own code (5 min; SQUELCH_SEED repeats a run; --churn [MINUTES]: change policies under 100 writes a second, 10 min)
[group('tiers')]
test-match-conditions *WRITES:
    @hack/e2e match-conditions "$@"

# Test that the memory of NUMBER (10,000) deleted namespaces is released (35 min)
[group('tiers')]
test-namespaces *NUMBER:
    @hack/e2e namespaces "$@"

# Test that the reports of NUMBER (10,000) namespaces add up to the statuses of a fifth as many policies, over a restart (40 min)
[group('tiers')]
test-reports *NUMBER:
    @hack/e2e reports "$@"

# Test for MINUTES (30) that memory, descriptors and threads stay constant under a storm with changing policies (35 min)
[group('tiers')]
soak *MINUTES:
    @hack/e2e soak "$@"

# Test what publishes a release with a registry on loopback: image, chart, SBOM, signatures, plugin (30 s, 5 min the first time; --node: also installs the chart from it on a node, root, 1 min more)
[group('tiers')]
test-release *ARGS:
    @hack/release/test "$@"

# Build the image for two architectures twice, in different folders, and compare the digests (1 h; --profile quick: 30 min)
[group('tiers')]
test-image *ARGS:
    @hack/image-reproducible "$@"

# Fuzz parsers and encoders, each target for SECONDS (60); --keep adds new inputs to the corpus, --minimize reduces it (3 min and 5 to build)
[group('tiers')]
fuzz *ARGS:
    @hack/fuzz "$@"

# Format the Rust and Go sources
fmt:
    cargo fmt --all
    cargo fmt --manifest-path fuzz/Cargo.toml
    git ls-files '*.go' | xargs gofmt -w

[private]
fmt-check:
    cargo fmt --all --check
    cargo fmt --manifest-path fuzz/Cargo.toml --check

# Run clippy, shellcheck, actionlint and gofmt; warnings are errors
[group('checks')]
lint:
    @hack/tools shellcheck actionlint
    hack/cargo-quick clippy --all-targets -- --deny warnings
    @hack/lint

# Check that the generated files are up to date
[group('checks')]
check-generated:
    @hack/generate --check

# Check licences, banned crates, sources and, if the RustSec database can be had, advisories of the dependencies
[group('checks')]
deny:
    @hack/deny

# Check versions, links, lock file, image, charts, Helm chart, alerts and dashboard queries
[group('checks')]
gates:
    @hack/gates

# Check the vocabulary of docs, comments, help texts, messages and alerts; arguments as in hack/prose (2 min the first time)
[group('checks')]
prose *ARGS:
    @hack/tools vale
    SQUELCH_BIN="${SQUELCH_BIN:-}" hack/prose "$@"

# Compare instruction counts of decisions and reviews with the committed ones; --write updates them (1 min)
[group('checks')]
instructions *ARGS:
    @hack/instructions "$@"

# Write the generated files: crds/, docs/metrics.md, examples/traces/
generate:
    @hack/generate

# Draw the charts of README.md and BENCHMARKS.md from the figures in docs/ (1 s)
charts:
    @hack/charts

# Benchmark decisions and whole reviews, and update docs/benchmarks/results.md; arguments are passed to divan (5 min)
bench *ARGS:
    @hack/bench "$@"

# Benchmark Event writes through an API server with and without squelch, and update docs/benchmarks/results.md (1 h; or names of groups; --short: 6)
bench-cluster *ARGS:
    @hack/e2e bench-cluster "$@"

# Benchmark rollouts on 2,000 nodes of kwok with the real scheduler and controllers, with and without squelch, and update docs/benchmarks/results.md (1 h; --rounds N for medians; --short: 6 min)
bench-kwok *ARGS:
    @hack/e2e bench-kwok "$@"

# Benchmark squelch's webhook over TLS beside a constant answer and a Go webhook, and update docs/benchmarks/results.md (6 min; --short: 1)
bench-serve *ARGS:
    @hack/bench-serve "$@"

# Build the container image, an OCI archive with one static binary, in target/image (10 min the first time)
image *ARGS:
    @hack/image "$@"

# Start a control plane on loopback; DIR and options as in `e2e/cluster/cluster --help`
[group('cluster')]
cluster-up *ARGS:
    @e2e/cluster/cluster up "$@"

# Stop the control plane and remove its folder
[group('cluster')]
cluster-down *ARGS:
    @e2e/cluster/cluster down "$@"

# Install the pinned tools into the cache (5 s)
tools:
    @hack/tools
