"""Installs basedpyright, the language server that tests let read the stubs of policies.

Its packages (the server, and the Node.js that runs it) are pinned by `requirements.lock` next to
this file, which `uv pip compile --universal --generate-hashes` makes of its first line; they go to
`${XDG_CACHE_HOME:-~/.cache}/starsched/basedpyright/<hash>/`, outside the checkout.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCK = HERE / "requirements.lock"


def command() -> list[str]:
    """The command of the language server; installs it if it is missing."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = f"{sys.version_info.major}.{sys.version_info.minor}".encode()
    name = hashlib.sha256(LOCK.read_bytes() + version).hexdigest()[:12]
    target = base / "starsched" / "basedpyright" / name
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        print("basedpyright: installing it (a minute, once)", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / "venv"
            venv.create(made, with_pip=True)
            install = ["-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(LOCK)]
            subprocess.run([made / "bin" / "python", *install], check=True)
            # Renamed when complete: two installations at once both end with a whole one.
            try:
                made.rename(target)
            except OSError:
                if not target.is_dir():
                    raise
                shutil.rmtree(made)
    # Not by its script: that names the folder in which the environment was made.
    program = "from basedpyright.langserver import main; main()"
    return [str(target / "bin" / "python"), "-c", program, "--stdio"]


if __name__ == "__main__":
    print(" ".join(command()))
