# The front door. `./justw` (or `just`) lists the recipes.

set shell := ["bash", "-euo", "pipefail", "-c"]

# Every recipe sees the pinned tools first.
export PATH := `. hack/env && echo "$PATH"`

[private]
default:
    @just --justfile {{ quote(justfile()) }} --list --unsorted

# A storm of Events with and without a policy, on a real API server (2 min; --keep keeps it, --node: the chart; root)
demo *ARGS:
    @hack/e2e demo {{ ARGS }}

# All that CI runs: the checks of `ci`, then every tier of tests
test:
    @hack/test

# Formatting, lint, generated files, dependencies, gates, instructions
ci: && fmt-check lint check-generated deny gates instructions
    @hack/tools

# Unit, property and router tests: no cluster; arguments go to the tests, e.g. a name (10 s)
[group('tiers')]
test-unit *ARGS:
    @hack/unit {{ ARGS }}

# End-to-end tests on two clusters of their own; arguments go to the tests on one, e.g. a name (13 min)
[group('tiers')]
test-e2e *ARGS:
    @hack/e2e test {{ ARGS }}

# The chart on a real node under a storm: installed, upgraded, restarted, removed; root only (14 min; --short: 4)
[group('tiers')]
test-node *ARGS:
    @hack/e2e node {{ ARGS }}

# Whatever can happen to a webhook, on a real node: a line for each fault; root only (40 min; --short: 6; or names of rows)
[group('tiers')]
test-faults *ARGS:
    @hack/e2e faults {{ ARGS }}

# Every kind of client under every kind of policy while everything fails: a line for each cell (11 min)
[group('tiers')]
test-nothing-lost:
    @hack/e2e nothing-lost

# What hostile callers and hostile tenants can do, a line for each way (20 min; or names of rows)
[group('tiers')]
test-hostile *ARGS:
    @hack/e2e hostile {{ ARGS }}

# 10,000 namespaces are made and deleted, and squelch keeps nothing of them (an hour; or a number)
[group('tiers')]
test-namespaces *NUMBER:
    @hack/e2e namespaces {{ NUMBER }}

# A storm that tells of other objects each minute, and policies that come and go: what squelch takes does not grow (35 min; or MINUTES)
[group('tiers')]
soak *MINUTES:
    @hack/e2e soak {{ MINUTES }}

# Fuzz what reads and writes foreign text, each target for SECONDS; --keep keeps new inputs (3 min and 4 to build)
[group('tiers')]
fuzz *ARGS:
    @hack/fuzz {{ ARGS }}

# Format the Rust and Go sources
fmt:
    cargo fmt --all
    cargo fmt --manifest-path fuzz/Cargo.toml
    git ls-files '*.go' | xargs gofmt -w

[private]
fmt-check:
    cargo fmt --all --check
    cargo fmt --manifest-path fuzz/Cargo.toml --check

# Clippy, shellcheck, gofmt; warnings are errors
[group('checks')]
lint:
    @hack/tools shellcheck
    hack/cargo-quick clippy --all-targets -- --deny warnings
    @hack/lint

# Are the generated files what the code generates?
[group('checks')]
check-generated:
    @hack/generate --check

# Licences, banned crates and sources of the dependencies
[group('checks')]
deny:
    @hack/tools cargo-deny
    cargo deny --locked check bans licenses sources

# Versions, links and the lock file agree with each other; alerts fire, queries of the dashboard are queries
[group('checks')]
gates:
    @hack/gates

# Do a decision and a review take as few instructions as they did? Arguments as in hack/instructions (1 min)
[group('checks')]
instructions *ARGS:
    @hack/instructions {{ ARGS }}

# Write the generated files: crds/, docs/metrics.md, examples/traces/
generate:
    @hack/generate

# Time decisions and whole reviews, and write the figures into BENCHMARKS.md; arguments go to divan (1 min)
bench *ARGS:
    @hack/bench {{ ARGS }}

# Time Event writes through an API server, with and without squelch, into BENCHMARKS.md (45 min; parts by name; --short: 5)
bench-cluster *ARGS:
    @hack/e2e bench-cluster {{ ARGS }}

# Ask squelch's webhook over TLS beside the floor and a webhook in Go, and write the figures into BENCHMARKS.md (6 min; --short: 1)
bench-serve *ARGS:
    @hack/bench-serve {{ ARGS }}

# Build the container image, an OCI archive of one static binary, into target/image (10 min the first time)
image *ARGS:
    @hack/image {{ ARGS }}

# Start a control plane on loopback; DIR and options as in `e2e/cluster/cluster --help`
[group('cluster')]
cluster-up *ARGS:
    @e2e/cluster/cluster up {{ ARGS }}

# End it and remove its folder
[group('cluster')]
cluster-down *ARGS:
    @e2e/cluster/cluster down {{ ARGS }}

# Install the pinned tools into the cache (5 s)
tools:
    @hack/tools
