# The image of squelch for whoever builds with docker or podman: one static binary, and a user who owns nothing.
# `./justw image` makes the same without either, bit for bit the same each time; its flags stand in hack/image.
FROM rust:1.95.0-bookworm AS build
WORKDIR /squelch
COPY . .
# The compiler that the image has: rust-toolchain.toml would fetch tools beside it that nothing here needs.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN target=$(uname -m)-unknown-linux-gnu \
    && export RUSTFLAGS="-Ctarget-feature=+crt-static --remap-path-prefix=$CARGO_HOME=/cargo" \
    && cargo build --locked --package squelch --bin squelch --release --target "$target" \
        --config 'profile.release.debug="none"' \
    && install -D --mode=555 "target/$target/release/squelch" /image/squelch

FROM scratch
LABEL org.opencontainers.image.title=squelch org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /image/ /
USER 65532:65532
ENTRYPOINT ["/squelch"]
