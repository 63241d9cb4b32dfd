# shellcheck shell=bash
# Common code of the release scripts. Sourced by them.
# shellcheck source=hack/env
. "$(dirname "${BASH_SOURCE[0]}")/../env"

# Where a build puts its files.
# shellcheck disable=SC2034  # of the scripts
DIST=${RELEASE_DIST:-$SQUELCH_TARGET/dist}

# usage SCRIPT: the comment at the top of a script.
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$1"; }

# check_version VERSION: a version of Semantic Versioning, without v.
check_version() {
  [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
    fail "'$1' is not a version: expected MAJOR.MINOR.PATCH, such as 0.1.0"
}

# check_settings: whether the environment says where to publish. The workflow sets it from the repository's variables.
check_settings() {
  [[ -n ${RELEASE_REGISTRY:-} ]] ||
    fail "RELEASE_REGISTRY is empty: set the repository variable RELEASE_REGISTRY to the registry and the folder to" \
      "publish to, such as ghcr.io/OWNER (docs/releases.md)"
  [[ $RELEASE_REGISTRY =~ ^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)*$ ]] ||
    fail "RELEASE_REGISTRY is '$RELEASE_REGISTRY': expected a host and a folder in lower case, without a scheme," \
      "such as ghcr.io/owner"
  [[ ${RELEASE_SOURCE:-} =~ ^https://[^/]+/.+[^/]$ ]] ||
    fail "RELEASE_SOURCE is '${RELEASE_SOURCE:-}': expected the URL of the repository, such as" \
      "https://github.com/OWNER/squelch"
}

# is_loopback REFERENCE: whether the registry is on this machine, and so without TLS.
is_loopback() { [[ $1 =~ ^(localhost|127\.0\.0\.1)(:[0-9]+)?/ ]]; }

# within_a_minute COMMAND...: a registry that does not answer is an error, not a wait for ever.
within_a_minute() { timeout --foreground 60 "$@"; }
