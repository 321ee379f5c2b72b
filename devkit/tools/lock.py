"""Writes the lock files: every package that is installed, pinned by version and hash.

Three files come from `pyproject.toml` alone, each valid for every Python that it allows on Linux:

- `requirements.lock`: what the scheduler runs with; the container image holds exactly this.
- `requirements-build.lock`: the build backend, for the image's first stage.
- `requirements-dev.lock`: both of these and the development tools; `make setup` installs it.

A package keeps its locked version for as long as `pyproject.toml` allows that; `--upgrade` lets all
of them move to the newest. Run it with `make lock` or `make lock UPGRADE=1`.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESOLVER = "uv==0.13.8"
DEV_LOCK = "requirements-dev.lock"
HEADER = """\
# {purpose}
# Written by `make lock` from pyproject.toml: edit that, not this.
"""


def wanted() -> dict[str, tuple[str, list[str]]]:
    """Lock file -> its purpose and the requirements that it resolves."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime = project["project"]["dependencies"]
    build = project["build-system"]["requires"]
    dev = project["project"]["optional-dependencies"]["dev"]
    # The widest first: the others are constrained by it, so a package has one version everywhere.
    return {
        DEV_LOCK: ("Runtime, build backend and development tools.", runtime + build + dev),
        "requirements.lock": ("What the scheduler runs with.", runtime),
        "requirements-build.lock": ("The build backend.", build),
    }


def least_python() -> str:
    """The oldest Python that `pyproject.toml` allows, such as `3.11`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["requires-python"]).removeprefix(">=")


def compile_lock(
    resolver: Path, requirements: list[str], constraints: Path | None, python: str
) -> str:
    """The pinned and hashed form of *requirements*, without comments and index options."""
    command = [
        *(str(resolver), "pip", "compile", "--quiet", "--universal", "--generate-hashes"),
        # One version of each package for all Pythons, not the newest for each.
        *("--fork-strategy", "fewest"),
        *("--python-version", python, "--no-header", "--no-annotate", "-"),
    ]
    if constraints is not None:
        command[-1:] = ["--constraints", str(constraints), "-"]
    answer = subprocess.run(
        command, input="\n".join(requirements), capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        raise SystemExit(f"lock: {RESOLVER} failed:\n{answer.stderr}")
    return answer.stdout


def pins_of(lock: Path) -> str:
    """The lines `name==version` of *lock*, without hashes: usable as constraints."""
    lines = (line.removesuffix("\\").strip() for line in lock.read_text().splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("#", "--")))


def main() -> int:
    """Write the lock files and return the exit code."""
    parser = argparse.ArgumentParser(description="write the lock files")
    parser.add_argument("--upgrade", action="store_true", help="let every package move")
    arguments = parser.parse_args()
    python = least_python()
    with tempfile.TemporaryDirectory(prefix="starsched-lock-") as scratch:
        # A throw-away environment: the resolver is no part of what we install.
        environment = Path(scratch) / "venv"
        venv.create(environment, with_pip=True)
        pip = [str(environment / "bin" / "python"), "-m", "pip"]
        subprocess.run([*pip, "install", "--quiet", RESOLVER], check=True)
        resolver = environment / "bin" / "uv"
        constraints = Path(scratch) / "constraints.txt"
        known = ROOT / DEV_LOCK
        constraints.write_text("" if arguments.upgrade or not known.exists() else pins_of(known))
        for name, (purpose, requirements) in wanted().items():
            pins = compile_lock(resolver, requirements, constraints, python)
            (ROOT / name).write_text(HEADER.format(purpose=purpose) + pins)
            if name == DEV_LOCK:
                constraints.write_text(pins_of(ROOT / DEV_LOCK))
            print(f"lock: {name}: {pins.count('==')} packages", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
