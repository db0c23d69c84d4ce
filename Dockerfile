# One image for every process: `docker run tickrail api|scheduler|worker|migrate`.
#
#   docker build -t tickrail:0.1.0 .
#
# By digest: --build-arg PYTHON_IMAGE=python@sha256:... Behind a mirror or a proxy with certificates
# of its own: --build-arg PIP_INDEX_URL=... PIP_CERT=/etc/ssl/certs/ca-certificates.crt
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG PIP_CERT
ARG PIP_INDEX_URL
# The wheel's files carry this instant, so that the same sources give the same wheel.
ARG SOURCE_DATE_EPOCH=1767225600
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/tickrail
# Locked dependencies first: these layers change only with the locks.
COPY requirements/build.lock requirements/image.lock requirements/
RUN /opt/build/bin/pip install --require-hashes --no-deps --only-binary :all: \
    -r requirements/build.lock
RUN /opt/build/bin/pip --python /opt/tickrail/bin/python install --require-hashes --no-deps \
    -r requirements/image.lock
COPY pyproject.toml README.md LICENSE ./
COPY libs libs
COPY services services
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/build/bin/pip --python /opt/tickrail/bin/python install --no-deps --no-index /wheels/*.whl
# What is in it: a bill of materials (CycloneDX).
COPY requirements/sbom.py requirements/sbom.py
RUN python3 requirements/sbom.py /opt/tickrail/lib/python3.*/site-packages \
    requirements/image.lock > /opt/tickrail/sbom.cdx.json

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="Tickrail" \
      org.opencontainers.image.description="A sharded, multi-tenant job scheduler" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
# No installer stays: nothing in the image can fetch or build a package.
RUN python3 -c "import ensurepip, shutil; shutil.rmtree(ensurepip.__path__[0])" \
    && rm -rf /usr/local/lib/python3.*/site-packages/* /usr/local/bin/pip* /usr/local/bin/wheel \
    && useradd --system --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin tickrail
COPY --from=build /opt/tickrail /opt/tickrail
# Everything listens inside its container; who reaches it is what publishes its ports.
ENV PATH=/opt/tickrail/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    TICKRAIL_API_HOST=0.0.0.0 \
    TICKRAIL_STATUS_HOST=0.0.0.0 \
    TICKRAIL_STATUS_PORT=9100
EXPOSE 8080 9100
USER 10001:10001
# The root file system may be read-only, with a tmpfs here.
WORKDIR /tmp
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os; from urllib.request import urlopen; urlopen(f\"http://127.0.0.1:{os.environ['TICKRAIL_STATUS_PORT']}/healthz\", timeout=3)"]
ENTRYPOINT ["tickrail"]
CMD ["--help"]
