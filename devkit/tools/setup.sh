#!/bin/sh
# Creates the virtual environment $1 and installs what requirements-dev.lock pins, by hash, and the
# project itself as an editable install. Needs Python 3.11 or newer; asks for no system package.
set -eu

venv=$1

# A name on the PATH may be a shim of a version that is not there: only one that runs will do.
python=
for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "setup: found no Python 3.11 or newer on the PATH" >&2
    echo "hint: name one with \`make setup PYTHON=/path/to/python3\`" >&2
    exit 1
fi

if ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "setup: creating $venv with $("$python" --version)"
    rm -rf "$venv"
    # Some distributions ship venv without ensurepip, but then they ship pip, which can install
    # into another environment.
    if "$python" -c 'import ensurepip' 2>/dev/null; then
        "$python" -m venv "$venv"
    else
        "$python" -m venv --without-pip "$venv"
        "$python" -m pip --python "$venv/bin/python" install --quiet pip
    fi
fi

echo "setup: installing the locked packages"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --require-hashes --requirement requirements-dev.lock
# The build backend is in the lock file: isolation would fetch another one, without a hash. It warns
# of every editable install that is not in a folder `src`.
PYTHONWARNINGS=ignore "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-deps --no-build-isolation --editable .
echo "setup: $venv/bin/starsched is ready"
