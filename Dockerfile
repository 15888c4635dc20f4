# An image with Muster and without a compiler:
#   docker build -t muster .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/home/muster/work" muster launch configs/smoke.txtpb
# scripts/package.sh builds and checks the same package without Docker.
FROM debian:bookworm AS build
WORKDIR /src
COPY . .
RUN scripts/package.sh --here
RUN mkdir /opt/muster && \
    tar -xzf build/package/muster-*-linux-x86_64.tar.gz -C /opt/muster --strip-components=1

FROM debian:bookworm-slim
# `muster data get` needs the certificates.
RUN apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 1000 --create-home muster && \
    mkdir /home/muster/work && \
    chown muster:muster /home/muster/work
COPY --from=build /opt/muster /opt/muster
USER muster
WORKDIR /home/muster/work
ENTRYPOINT ["/opt/muster/bin/muster"]
CMD ["--help"]
