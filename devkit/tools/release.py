"""Makes everything that a release has, from the commit that is checked out, into one folder.

Wheel and sdist, the archive of the Helm chart, a bill of materials (SPDX) for each platform, the
archive and the manifest of kubectl's plugin, the notes and the checksums. Uncommitted changes are
not in it. Two runs on one commit give the same bytes: times are the commit's, owners are nobody,
modes do not depend on the umask. The container image is `make image`'s.

Run it with `make release`.
"""

import argparse
import gzip
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = "deploy/helm/starsched"
PLUGIN: Final = "deploy/krew"
REPOSITORY: Final = "https://github.com/starsched/starsched"
SUMS: Final = "SHA256SUMS"
NOTES: Final = "NOTES.md"
_WHEEL: Final = "from setuptools import build_meta as b; print(b.build_wheel('{}'))"
_SDIST: Final = "from setuptools import build_meta as b; print(b.build_sdist('{}'))"


class CannotRelease(Exception):
    """The commit is not ready for a release; the text says why."""


def notes(changelog: str, version: str) -> str:
    """What *changelog* has for *version*, without its heading; links lead to the version's tag.

    Raises `CannotRelease` if there is no such section, or nothing in it.
    """
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    found = [text for text in sections if text.split(maxsplit=1)[0] == version]
    if not found:
        raise CannotRelease(f"CHANGELOG.md: no section `## {version}`")
    body = found[0].partition("\n")[2].strip()
    if not body:
        raise CannotRelease(f"CHANGELOG.md: the section `## {version}` is empty")
    tag = f"{REPOSITORY}/blob/v{version}/"
    return re.sub(r"\]\((?!\w+://|#)([^)]+)\)", rf"]({tag}\1)", body) + "\n"


def release(output: Path, repository: str = REPOSITORY) -> list[Path]:
    """Make the release of the commit in a new folder *output*; the files, in order of name.

    Raises `CannotRelease`.
    """
    if output.exists() and any(output.iterdir()):
        raise CannotRelease(f"{output}: want a folder that is empty or not there")
    output.mkdir(parents=True, exist_ok=True)
    epoch = int(_git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory(prefix="starsched-release-") as scratch:
        tree = Path(scratch) / "tree"
        _export(tree)
        version = str(_tool(tree, "version").version())
        # 1. First what can be refused.
        (output / NOTES).write_text(notes((tree / "CHANGELOG.md").read_text(), version))
        # 2. The sdist, and from it the wheel: so it is known that it can be built from it.
        sdist = _built(tree, _SDIST, epoch, Path(scratch) / "sdist")
        source = Path(scratch) / "source"
        _repack(sdist, output / sdist.name, epoch)
        with tarfile.open(output / sdist.name) as archive:
            _unpack(archive, source)
        (unpacked,) = source.iterdir()
        wheel = _built(unpacked, _WHEEL, epoch, Path(scratch) / "wheel")
        shutil.copyfile(wheel, output / wheel.name)
        # 3. The chart, in the layout of `helm package`.
        chart = {f"starsched/{name}": data for name, data in _files(tree / CHART).items()}
        _archive(output / f"starsched-{version}.tgz", chart, epoch)
        # 4. What each platform's image and installation have.
        fetch, sbom = _tool(tree, "wheels"), _tool(tree, "sbom")
        for platform in fetch.PLATFORMS:
            packages = [*sbom.of_wheels(fetch.wheels(platform)), sbom.of_wheel(wheel)]
            bill = json.dumps(sbom.document(packages, "starsched", epoch), indent=1)
            (output / f"starsched-{version}-linux-{platform}.spdx.json").write_text(bill + "\n")
        # 5. kubectl's plugin.
        plugin = output / f"kubectl-starsched-{version}.tar.gz"
        inside = {
            name: (tree / name).read_bytes() for name in ("LICENSE", "NOTICE", "requirements.lock")
        }
        inside["kubectl-starsched"] = (tree / PLUGIN / "kubectl-starsched").read_bytes()
        inside[wheel.name] = wheel.read_bytes()
        _archive(plugin, inside, epoch, programs={"kubectl-starsched"})
        manifest = (
            (tree / PLUGIN / "plugin.yaml")
            .read_text()
            .format(
                version=version,
                repository=repository,
                uri=f"{repository}/releases/download/v{version}/{plugin.name}",
                sha256=_sha256(plugin),
            )
        )
        (output / "starsched.yaml").write_text(manifest)
    # 6. The checksums of all that is downloaded.
    made = sorted(path for path in output.iterdir() if path.name not in (NOTES, SUMS))
    sums = "".join(f"{_sha256(path)}  {path.name}\n" for path in made)
    (output / SUMS).write_text(sums)
    return sorted(output.iterdir())


def _export(tree: Path) -> None:
    """Write the files of the commit into *tree*, with the modes that git knows."""
    archive = _git_bytes("-c", "tar.umask=0022", "archive", "--format=tar", "HEAD")
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        _unpack(opened, tree)


def _unpack(archive: tarfile.TarFile, folder: Path) -> None:
    # The first Pythons 3.11 have no filters; later ones warn of those who name none.
    archive.extractall(folder, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))


def _built(tree: Path, code: str, epoch: int, target: Path) -> Path:
    """What the build backend makes of *tree*, in *target*."""
    target.mkdir()
    result = subprocess.run(
        [sys.executable, "-c", code.format(target)],
        cwd=tree,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"},
        umask=0o022,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise CannotRelease(f"the build failed:\n{result.stdout}{result.stderr}")
    return target / result.stdout.splitlines()[-1]


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _repack(archive: Path, target: Path, epoch: int) -> None:
    """Write the files of *archive* again, without what differs between builds."""
    with tarfile.open(archive) as opened:
        members = [member for member in opened if member.isfile()]
        files = {}
        for member in members:
            content = opened.extractfile(member)
            assert content is not None
            files[member.name] = content.read()
    _archive(target, files, epoch)


def _archive(
    target: Path, files: dict[str, bytes], epoch: int, programs: Iterable[str] = ()
) -> None:
    """Write a `.tar.gz` of *files* by their paths; *programs* can be run."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            member.mtime = epoch
            member.mode = 0o755 if name in set(programs) else 0o644
            archive.addfile(member, io.BytesIO(files[name]))
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*arguments: str) -> str:
    return _git_bytes(*arguments).decode().strip()


def _git_bytes(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def _tool(tree: Path, name: str) -> ModuleType:
    """The script *name* of the commit, as a module: it reads the commit's files."""
    path = tree / "devkit" / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"starsched_{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"devkit/tools/{name}.py: not a Python module")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by its name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Make the release and return the exit code."""
    parser = argparse.ArgumentParser(description="make everything that a release has")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--repository", default=REPOSITORY, help="its address on GitHub")
    given = parser.parse_args()
    try:
        for path in release(given.output, given.repository):
            print(path)
    except (CannotRelease, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
