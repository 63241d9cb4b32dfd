# shellcheck shell=bash disable=SC2154  # variables of ./test
# What hack/release/test checks of a published release. Sourced by it.

step "the image, pulled by digest, is the archive byte for byte"
crane pull --format oci "$image" "$scratch/pulled" 2>/dev/null
mkdir "$scratch/built"
tar -xf "$archive" -C "$scratch/built"
diff --recursive "$scratch/built/blobs" "$scratch/pulled/blobs" >&2 || failed "the pulled image differs"
same "the digest" "${image#*@}" "$(jq --raw-output '.manifests[0].digest' "$scratch/built/index.json")"

step "what is published is not replaced"
printf other >"$scratch/other"
hack/image --binary "$scratch/other" --name "squelch.dev/squelch:$version" --output "$scratch/other.tar" >/dev/null 2>&1
refused "exists with another digest" hack/release/push-image "$scratch/other.tar" "${image%@*}" "$version"
mkdir "$scratch/other.chart"
no_digest=sha256:$(printf '0%.0s' {1..64})
package=$(hack/release/chart "$version" "${image%@*}@$no_digest" "$RELEASE_SOURCE" "$scratch/other.chart")
refused "exists with another package" hack/release/push-chart "$package" "$RELEASE_REGISTRY/charts"
refused "cannot be pushed to oci://127.0.0.1:9/charts: .*connection refused" \
  hack/release/push-chart "$package" 127.0.0.1:9/charts

step "helm has the login too"
hack/release/push-chart "$DIST/squelch-$version.tgz" "$closed/charts" >/dev/null || failed "the chart is not pushed"

step "the chart, by version and by digest, with Helm 4 and 3, has the image by digest"
helm3=$(tool_folder helm3)/helm3
for program in helm "$helm3"; do
  for source in "oci://${chart%@*} --version $version" "oci://$chart"; do
    # shellcheck disable=SC2086  # words
    rendered=$("$program" template squelch $source --plain-http 2>/dev/null)
    images=$(sed -n 's/^ *image: "\(.*\)"$/\1/p' <<<"$rendered" | sort --unique)
    same "the images of $program template $source" "$images" "$image"
  done
done
! helm template squelch "oci://${chart%@*}@$no_digest" --plain-http >/dev/null 2>&1 ||
  failed "a chart of another digest is installed"

step "the alerts lead to the runbooks of the version"
rendered=$(helm template squelch "oci://$chart" --plain-http --api-versions monitoring.coreos.com/v1 2>/dev/null)
runbooks=$(sed -n 's/^ *runbook_url: \(.*\)#.*/\1/p' <<<"$rendered" | sort --unique)
same "the URL of the runbooks" "$runbooks" "$RELEASE_SOURCE/blob/$tag/docs/runbooks.md"
unpublished=$(tar -xOzf "$DIST/squelch-$version.tgz" | grep -c "squelch.dev/docs" || true)
same "the number of links to unpublished documents" "$unpublished" 0

step "the annotations of the chart, and the links of its README"
metadata=$(json "$DIST/squelch-$version.tgz" squelch/Chart.yaml)
annotation() { jq --raw-output --arg name "artifacthub.io/$1" '.annotations[$name]' <<<"$metadata"; }
same license "$(annotation license)" Apache-2.0
same images "$(annotation images | jq --raw-output '.[].image')" "$image"
same links "$(annotation links | jq --raw-output '.[0].url')" "$RELEASE_SOURCE"
# shellcheck disable=SC2016  # Markdown
expected='added Policies: `EventPolicy` merges repeats.
fixed "Quotes" & colons: yes.'
same changes "$(annotation changes | jq --raw-output '.[] | "\(.kind) \(.description)"')" "$expected"
same CRDs "$(annotation crds | sed -n 's/^ *name: //p' | sort)" "$(sed -n 's/^  name: //p' crds/*.yaml | sort)"
links=$(tar -xOzf "$DIST/squelch-$version.tgz" squelch/README.md | grep -oE '\]\([^)]+\)')
same "relative links of the README" "$(grep -vE '^\]\((https://|#)' <<<"$links")" ""
# They lead to files of the checkout.
while IFS= read -r target; do
  [[ -e $target ]] || failed "the README of the chart links to $target"
done < <(sed -n "s|^\](\($RELEASE_SOURCE\)/blob/$tag/\([^)#]*\).*|\2|p" <<<"$links")

step "kubectl-squelch: reproducible, the program of the image, installed by krew"
mkdir "$scratch/again"
touch --date=2001-01-01 "$archive"
hack/release/archives "$version" "$archive" "$scratch/again" >/dev/null
for packed in "$scratch"/again/*.tar.gz; do
  cmp "$packed" "$DIST/$(basename "$packed")" || failed "the archive is not reproducible"
done
packed=$DIST/kubectl-squelch_${version}_linux_amd64.tar.gz
same "the files" "$(tar -tzf "$packed" | xargs)" "LICENSE kubectl-squelch"
tar -xOzf "$packed" kubectl-squelch | cmp - "$SQUELCH_BUILT/squelch" || failed "the program is not that of the image"
installed() { krew install --manifest="$DIST/squelch.krew.yaml" --archive="$1" >"$scratch/krew.log" 2>&1; }
installed "$packed" || failed "krew does not install it: $(<"$scratch/krew.log")"
export PATH=$KREW_ROOT/bin:$PATH
kubectl squelch doctor --help >"$scratch/help"
same "the usage" "$(grep '^Usage:' "$scratch/help")" "Usage: kubectl squelch doctor [OPTIONS]"
same "the version" "$(kubectl squelch --version)" "squelch $version"
printf damaged >"$scratch/damaged.tar.gz"
! KREW_ROOT=$scratch/other.krew installed "$scratch/damaged.tar.gz" || failed "krew installs an archive of another hash"

step "the SBOM has every crate that the program names, with the hash of Cargo.lock"
sbom=$DIST/squelch-$version.spdx.json
crates() {
  jq --raw-output '.packages[] | select(.downloadLocation != "NOASSERTION") | "\(.name)-\(.versionInfo)"' "$sbom" |
    sort --unique
}
# Panics name the source files of their crates.
named=$(grep -aoE '/cargo/registry/src/[^/]+/[^/]+/' "$SQUELCH_BUILT/squelch" | cut -d / -f 6 | sort --unique)
(($(wc -l <<<"$named") > 50)) || failed "the program names few crates: $named"
same "crates that the SBOM lacks" "$(comm -23 <(echo "$named") <(crates))" ""
python3 - "$sbom" <<'PYTHON' || failed "the SBOM contradicts Cargo.lock"
import json, sys, tomllib
locked = {(it["name"], it["version"]): it for it in tomllib.load(open("Cargo.lock", "rb"))["package"]}
sbom = json.load(open(sys.argv[1]))
packages = {package["SPDXID"]: package for package in sbom["packages"]}
assert len(packages) == len(sbom["packages"]), "identifiers repeat"
for package in packages.values():
    if "pkg:cargo/" in str(package.get("externalRefs")):
        entry = locked[package["name"], package["versionInfo"]]
        hashes = [it["checksumValue"] for it in package.get("checksums", [])]
        assert set(hashes) == {entry.get("checksum")} - {None}, package["name"]
        assert package["licenseDeclared"] not in ("", "NOASSERTION"), package["name"]
ends = {it[key] for it in sbom["relationships"] for key in ("spdxElementId", "relatedSpdxElement")}
assert ends == set(packages) | {"SPDXRef-DOCUMENT"}, ends ^ set(packages)
assert {"glibc", "libgcc", "rust-std"} <= {package["name"] for package in packages.values()}
assert "proptest" not in {package["name"] for package in packages.values()}, "a crate of the tests"
PYTHON
described=$(jq --raw-output '.packages[] | select(.SPDXID == "SPDXRef-Image").checksums[].checksumValue' "$sbom")
same "the image in the SBOM" "sha256:$described" "${image#*@}"

step "signatures, provenance and SBOM in the registry are those of this image and chart"
key=(--key "$scratch/cosign.pub" --insecure-ignore-tlog --allow-http-registry)
for reference in "$image" "$chart"; do
  cosign verify "${key[@]}" "$reference" >/dev/null 2>&1 || failed "the signature of $reference is not valid"
  cosign verify-attestation "${key[@]}" --type slsaprovenance1 "$reference" 2>/dev/null |
    jq '.payload | @base64d | fromjson' >"$scratch/statements" || failed "the provenance of $reference is not valid"
  # Each of the two runs has attached one.
  subjects=$(jq --raw-output '.subject[].digest.sha256' "$scratch/statements" | sort --unique)
  same "the subject" "sha256:$subjects" "${reference#*@}"
  commits=$(jq --raw-output '.predicate.buildDefinition.resolvedDependencies[].digest.gitCommit' "$scratch/statements")
  same "the commit" "$(sort --unique <<<"$commits")" "$commit"
done
cosign verify-attestation "${key[@]}" --type spdxjson "$image" 2>/dev/null |
  jq --slurp --sort-keys 'map(.payload | @base64d | fromjson.predicate) | unique[]' | cmp - <(jq --sort-keys . "$sbom") || failed "the attached SBOM is another one"
(cd "$scratch" && mkdir other.key && cd other.key && cosign generate-key-pair >/dev/null 2>&1)
! cosign verify "${key[@]}" --key "$scratch/other.key/cosign.pub" "$image" >/dev/null 2>&1 ||
  failed "the signature is valid with another key"
bundle=(--key "$scratch/cosign.pub" --insecure-ignore-tlog --bundle "$DIST/checksums.txt.sigstore.json")
cosign verify-blob "${bundle[@]}" "$DIST/checksums.txt" >/dev/null 2>&1 ||
  failed "the signature of the checksums is not valid"
sed 's/0/1/' "$DIST/checksums.txt" >"$scratch/checksums.txt"
! cosign verify-blob "${bundle[@]}" "$scratch/checksums.txt" >/dev/null 2>&1 ||
  failed "changed checksums are accepted"

step "the release on the forge"
mkdir "$scratch/bin"
printf '#!/bin/sh\nprintf "%%s\\n" "$@" >"%s"\n' "$scratch/gh" >"$scratch/bin/gh"
chmod +x "$scratch/bin/gh"
PATH=$scratch/bin:$PATH hack/release/announce "$tag"
for name in "$(basename "$packed")" "squelch-$version.tgz" "squelch-$version.spdx.json" squelch.krew.yaml \
  provenance.json references.txt checksums.txt checksums.txt.sigstore.json; do
  grep -qx "$name" "$scratch/gh" || failed "the release lacks $name: $(<"$scratch/gh")"
done
! grep -qx -e --prerelease "$scratch/gh" || failed "$tag is announced as a prerelease"
grep -q "$image" "$DIST/announcement.md" || failed "the announcement lacks the image"
grep -q 'merges$' "$DIST/announcement.md" || failed "the announcement lacks the notes"
echo changed >>"$DIST/squelch.krew.yaml"
refused "has changed since it was published" env PATH="$scratch/bin:$PATH" hack/release/announce "$tag"

step "only a commit on which ci has passed is released"
# shellcheck disable=SC2016  # of the stub
printf '#!/bin/sh\necho "$*" >"%s"\nprintf %%s "$FOUND"\n' "$scratch/gh" >"$scratch/bin/gh"
tested() { env FOUND="$1" PATH="$scratch/bin:$PATH" hack/release/tested "$commit"; }
refused "ci has not passed on $commit" tested ""
run=https://forge.example/team/squelch/actions/runs/1
same "the run of ci" "$(tested "$run")" "$run"
for option in "--workflow ci.yml" "--event push" "--status success" "--commit $commit"; do
  grep -q -e "$option" "$scratch/gh" || failed "gh was not called with $option: $(<"$scratch/gh")"
done

step "every script of the workflow was run"
while IFS= read -r script; do
  grep -qE "$script( |$)" hack/release/test hack/release/checks.sh ||
    failed "$script is in the workflow and not in the test"
done < <(grep -oE 'hack/release/[a-z-]+' .github/workflows/release.yml | sort --unique)
