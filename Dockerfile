# Tally's server and sync worker in one small image: scripts/image builds it, with labels and the commit's time.

# For the same bytes again, give both by digest: --build-arg BASE_IMAGE=debian@sha256:…
ARG BUILD_IMAGE=rust:1-bookworm
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
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

FROM ${BASE_IMAGE}
# Not useradd, which writes the day into /etc/shadow. The number is that of deploy/kubernetes.
RUN echo 'tally:x:65532:65532::/nonexistent:/usr/sbin/nologin' >>/etc/passwd \
 && echo 'tally:x:65532:' >>/etc/group
# The authorities that sign the certificates of managed stores.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /build/target/release/tally /build/target/release/sync-worker /usr/local/bin/
# A number: Kubernetes cannot tell by a name that a user is not root.
USER 65532:65532
ENV TALLY_LISTEN=0.0.0.0:8080 TALLY_LOG_FORMAT=json
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["tally", "health", "--url", "http://127.0.0.1:8080/health/ready"]
CMD ["tally", "serve"]

# The last, so that another commit alone changes no layer above. The project has no licence and no public address to name.
ARG TALLY_COMMIT=
ARG VERSION=
ARG CREATED=
LABEL org.opencontainers.image.title="Tally" \
      org.opencontainers.image.description="Counts votes exactly: each vote is a row in Postgres, and Redis counts it at once" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${TALLY_COMMIT}" \
      org.opencontainers.image.created="${CREATED}"
