# The image of squelch, for docker and podman: one static binary, and a user without files. `./justw image` builds a
# reproducible image without either of them (hack/image).
FROM rust:1.95.0-bookworm AS build
WORKDIR /squelch
COPY . .
# The toolchain of the image: rust-toolchain.toml also requests components that this build does not need.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN target=$(uname -m)-unknown-linux-gnu \
    && export RUSTFLAGS="-Ctarget-feature=+crt-static --remap-path-prefix=$CARGO_HOME=/cargo" \
    && cargo build --locked --package squelch --bin squelch --release --target "$target" \
        --config 'profile.release.debug="none"' \
    && install -D --mode=555 "target/$target/release/squelch" /image/squelch

FROM scratch
LABEL org.opencontainers.image.title=squelch org.opencontainers.image.licenses=Apache-2.0 \
    org.opencontainers.image.description="Event policy operator for Kubernetes: compacts, aggregates and limits Events, and counts what it suppresses."
COPY --from=build /image/ /
USER 65532:65532
ENTRYPOINT ["/squelch"]
