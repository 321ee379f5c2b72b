# The scheduler's image: a Python, the packages of requirements.lock and starsched, nothing else.
#
# It is reproducible: the base is named by its digest, every package by its hash, and what the build
# makes depends on the commit alone. The engine has to set the times of what it writes itself
# (`make image` asks BuildKit to).
#
# Both stages must use the same base: the environment that the first fills runs in the second. The
# digest is that of the list of all platforms; `make image-digests` asks the registry for a newer
# one. For another image give both arguments.
ARG PYTHON_IMAGE=docker.io/library/python:3.13.16-slim-trixie
ARG PYTHON_DIGEST=sha256:70729b46c69b4f1e97c4822c1af3df53a1476cf5ddc6c087c0c10bc3a5678c2f

# --- build: wheels into a virtual environment ---------------------------------------------------
FROM ${PYTHON_IMAGE}@${PYTHON_DIGEST} AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONHASHSEED=0

# Third-party packages first: an edit of our own files leaves this layer in the cache. Wheels only,
# each checked against its hash; no package may run a build of its own.
COPY requirements.lock requirements-build.lock ./
RUN python -m pip download \
        --require-hashes --only-binary :all: --dest /wheels --requirement requirements.lock
RUN python -m venv --without-pip /opt/starsched
RUN python -m pip --python /opt/starsched/bin/python install --no-compile \
        --require-hashes --no-index --find-links /wheels --requirement requirements.lock
RUN python -m venv --without-pip /opt/build \
    && python -m pip --python /opt/build/bin/python install --no-compile \
        --require-hashes --only-binary :all: --requirement requirements-build.lock

# When the commit was made, in seconds: no file says when it was built.
ARG SOURCE_DATE_EPOCH=0
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY engine engine
COPY workbench workbench
COPY policies policies
# A checkout's files have the modes that its user's umask gives them.
RUN chmod -R u=rwX,go=rX . \
    && python -m pip --python /opt/build/bin/python wheel \
        --no-deps --no-build-isolation --wheel-dir /wheels .
RUN python -m pip --python /opt/starsched/bin/python install --no-compile \
        --no-deps --no-index --find-links /wheels starsched
# By kube-scheduler's name it is `starsched run` with kube-scheduler's defaults: the manifest of a
# static pod calls that.
RUN ln -s starsched /opt/starsched/bin/kube-scheduler
# What is in the image, the base's packages included.
COPY devkit/tools/sbom.py ./
ARG PYTHON_IMAGE
ARG PYTHON_DIGEST
RUN python sbom.py --wheels /wheels --dpkg /var/lib/dpkg/status --os-release /etc/os-release \
        --base ${PYTHON_IMAGE}@${PYTHON_DIGEST} --created ${SOURCE_DATE_EPOCH} \
        --output /opt/starsched/share/sbom/starsched.spdx.json
# Compiled here, because the running container cannot write beside its files; and told by no time of
# the source, so that the bytes are the same in every build and no start compares them.
# All of it (-f): pip has imported some packages while it installed others, and left their bytecode.
RUN /opt/starsched/bin/python -m compileall -qf --invalidation-mode unchecked-hash /opt/starsched/lib
RUN find /opt/starsched -exec touch --no-dereference --date @${SOURCE_DATE_EPOCH} {} +

# --- run: no compiler, no pip cache, no root -----------------------------------------------------
FROM ${PYTHON_IMAGE}@${PYTHON_DIGEST}
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

# Last, because they differ between any two commits. `make image` gives the arguments.
ARG PYTHON_IMAGE
ARG PYTHON_DIGEST
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
ARG SOURCE=https://github.com/starsched/starsched
LABEL org.opencontainers.image.title="starsched" \
      org.opencontainers.image.description="A Kubernetes scheduler whose decisions are Starlark policy files" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.base.digest="${PYTHON_DIGEST}"
