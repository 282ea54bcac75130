# An image with Python, Java and Tidewire. Clients need a password: mount a file with that of role materialize, and name it in
# TIDEWIRE_SUPERUSER_PASSWORD_FILE. Without TIDEWIRE_TLS_CERT and TIDEWIRE_TLS_KEY the connections are not encrypted: publish
# the port on the loopback interface only (-p 127.0.0.1:6875:6875). Port 6876 serves the probes, and /metrics over TLS.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/tidewire
COPY pyproject.toml README.md LICENSE ./
COPY .ci/constraints.txt .ci/constraints.txt
COPY protocol protocol
COPY catalog catalog
COPY server server
COPY testdrive testdrive
COPY tidewire tidewire
RUN pip install --no-cache-dir --constraint .ci/constraints.txt '.[testdrive,connect]' \
    && useradd --system --create-home --uid 10001 tidewire \
    && install -d -m 0700 -o tidewire -g tidewire /var/lib/tidewire

USER tidewire
ENV TIDEWIRE_LISTEN=0.0.0.0:6875 \
    TIDEWIRE_HTTP_LISTEN=0.0.0.0:6876 \
    TIDEWIRE_AUTH=scram-sha-256 \
    TIDEWIRE_DATA_DIR=/var/lib/tidewire \
    TIDEWIRE_LOG_FORMAT=json
VOLUME /var/lib/tidewire
EXPOSE 6875 6876
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:6876/healthz', timeout=2)"]
CMD ["tidewire", "serve"]
