# Tally's server and sync worker in one small image.

FROM rust:1-bookworm AS build
WORKDIR /build
# Symbols and line tables would make each program four times as large. A panic names its
# file and line without them.
ENV CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_STRIP=symbols
# The dependencies come first: they seldom change, so this layer is kept. Cargo wants a file
# for every target that the manifests name; tests and benches keep these stand-ins.
COPY Cargo.toml Cargo.lock ./
COPY testkit/Cargo.toml testkit/
RUN mkdir -p src/bin benches/compare benches/readers benches/soak tests/it testkit/src \
 && echo 'fn main() {}' | tee src/main.rs src/bin/sync-worker.rs benches/compare/main.rs benches/readers/main.rs benches/soak/main.rs benches/connections.rs tests/it/main.rs testkit/src/lib.rs >/dev/null \
 && touch src/lib.rs \
 && cargo build --release --locked --bins \
 && rm -rf src
COPY .cargo .cargo
COPY .sqlx .sqlx
COPY lua lua
COPY docs/problems.md docs/
COPY migrations migrations
COPY scripts/redis-users scripts/
COPY scripts/rustc-for-tests scripts/
COPY src src
# For `tally --version`: --build-arg TALLY_COMMIT=…
ARG TALLY_COMMIT=
RUN touch src/lib.rs src/main.rs src/bin/sync-worker.rs \
 && cargo build --release --locked --bins

FROM debian:bookworm-slim
RUN useradd --system --no-create-home --shell /usr/sbin/nologin tally
# The authorities that sign the certificates of managed stores.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /build/target/release/tally /build/target/release/sync-worker /usr/local/bin/
USER tally
ENV TALLY_LISTEN=0.0.0.0:8080 TALLY_LOG_FORMAT=json
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["tally", "health", "--url", "http://127.0.0.1:8080/health/ready"]
CMD ["tally", "serve"]
