# The scheduler's image: a Python, the packages of requirements.lock and starsched, nothing else.
# Both stages must use the same base: the environment that the first fills runs in the second.
ARG PYTHON_IMAGE=python:3.13-slim

# --- build: wheels into a virtual environment ---------------------------------------------------
FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# Third-party packages first: an edit of our own files leaves this layer in the cache. Wheels only,
# each checked against its hash; no package may run a build of its own.
COPY requirements.lock requirements-build.lock ./
RUN python -m venv --without-pip /opt/starsched
RUN python -m pip --python /opt/starsched/bin/python install \
        --require-hashes --only-binary :all: --requirement requirements.lock
RUN python -m venv /opt/build \
    && /opt/build/bin/python -m pip install \
        --require-hashes --only-binary :all: --requirement requirements-build.lock

COPY pyproject.toml README.md LICENSE NOTICE ./
COPY engine engine
COPY policies policies
RUN /opt/build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .
RUN python -m pip --python /opt/starsched/bin/python install --no-deps --no-index /wheels/*.whl
# By kube-scheduler's name it is `starsched run` with kube-scheduler's defaults: the manifest of a
# static pod calls that.
RUN ln -s starsched /opt/starsched/bin/kube-scheduler
# Compiled here, because the running container cannot write beside its files.
RUN /opt/starsched/bin/python -m compileall -q /opt/starsched/lib

# --- run: no compiler, no pip cache, no root -----------------------------------------------------
FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="starsched" \
      org.opencontainers.image.description="A Kubernetes scheduler whose decisions are Starlark policy files"

COPY --from=build /opt/starsched /opt/starsched

# The root file system may be mounted read-only. The one folder that is written to is the state
# directory, where the last good policies are kept: mount a volume there.
RUN install -d -m 0750 -o 65532 -g 65532 /var/lib/starsched
# HOME, because the user has no entry in the user list, and some libraries ask.
ENV PATH=/opt/starsched/bin:${PATH} \
    HOME=/var/lib/starsched \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

# A number, so that `runAsNonRoot` can be checked without reading the image's user list.
USER 65532:65532
EXPOSE 10259
ENTRYPOINT ["starsched"]
CMD ["run"]
