"""The container image, by its files: what is in it, and that its start command runs from them."""

import os
import re
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.deploy.conftest import ARGUMENTS
from tests.deploy.image import Image, parse, sent_to_the_engine
from tests.deploy.locks import locked
from tests.deploy.rendering import ROOT
from tests.deploy.scheduler_process import as_user

_DOCKERFILE = (ROOT / "Dockerfile").read_text()
_STAGES = parse(_DOCKERFILE)[1]
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_last_of_two_stages_runs_nothing_but_the_state_directory_s_making() -> None:
    build_stage, last = _STAGES
    assert build_stage.base == last.base, "an environment is valid for the Python it was made with"
    assert [i.text for i in last.instructions if i.name == "RUN"] == [
        "install -d -m 0750 -o 65532 -g 65532 /var/lib/starsched"
    ]
    assert [i.text for i in last.instructions if i.name == "COPY"] == [
        "--from=build /opt/starsched /opt/starsched"
    ]


def test_the_base_is_named_by_its_full_version_and_its_digest() -> None:
    assert re.fullmatch(
        r"docker\.io/library/python:\d+\.\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", _STAGES[-1].base
    )


def test_the_labels_say_what_the_image_is_of(image: Image) -> None:
    base, _, digest = _STAGES[-1].base.partition("@")
    got = {
        name.removeprefix("org.opencontainers.image."): image.labels[name] for name in image.labels
    }
    assert got == {
        "title": "starsched",
        "description": _PROJECT["description"],
        "licenses": "Apache-2.0",
        "source": "https://github.com/starsched/starsched",
        "version": ARGUMENTS["VERSION"],
        "revision": ARGUMENTS["REVISION"],
        "created": ARGUMENTS["CREATED"],
        "base.name": base,
        "base.digest": digest,
    }


def test_the_user_is_a_number_and_not_root() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", _STAGES[-1].last("USER"))


def test_nothing_is_installed_without_a_hash() -> None:
    for instruction in _STAGES[0].instructions:
        if instruction.name == "RUN" and "pip" in instruction.text.split():
            text = instruction.text
            is_ours = "--no-deps" in text and "--no-build-isolation" in text
            from_our_wheel = "--no-deps" in text and "--no-index" in text
            assert is_ours or from_our_wheel or "--require-hashes" in text, text


def test_only_what_the_image_is_made_of_is_sent_to_the_engine() -> None:
    sent = set(sent_to_the_engine(ROOT))
    tops = {name.partition("/")[0] for name in sent}
    assert tops == {
        "engine",
        "workbench",
        "policies",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "NOTICE",
        "requirements.lock",
        "requirements-build.lock",
        "devkit",
    }
    assert [name for name in sent if name.startswith("devkit/")] == ["devkit/tools/sbom.py"]
    assert not [name for name in sent if "__pycache__" in name]


def run(image: Image, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The image's start command with *arguments*, to its end."""
    return subprocess.run(
        image.command(*arguments),
        env=image.environment,
        cwd="/",
        preexec_fn=as_user(image),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_start_command_runs(image: Image) -> None:
    result = run(image, "run", "--help")
    assert result.returncode == 0, result.stderr
    assert "--policies" in result.stdout


def test_by_kube_schedulers_name_it_takes_kube_schedulers_flags(image: Image) -> None:
    """kubeadm's manifest calls that name."""
    named = replace(image, entrypoint=["kube-scheduler"])
    assert run(named, "--version").stdout.startswith("starsched ")
    result = run(named, "--leader-elect=maybe")
    assert (result.returncode, "got `maybe`" in result.stderr) == (2, True)


def test_the_image_of_a_static_pod_differs_in_its_user_alone() -> None:
    text = (ROOT / "deploy/static-pod/Dockerfile").read_text()
    version = _PROJECT["version"]
    assert [line for line in text.splitlines() if line and not line.startswith("#")] == [
        f"ARG STARSCHED_IMAGE=starsched:{version}",
        "FROM ${STARSCHED_IMAGE}",
        "USER 0:0",
    ]


def test_the_shipped_policies_are_in_the_image(image: Image) -> None:
    result = run(image, "eject", "NodeResourcesFit")
    assert result.returncode == 0, result.stderr
    shipped = ROOT / "policies" / "kubernetes" / "node_resources_fit.star"
    assert result.stdout.strip() == shipped.read_text().strip()


def test_the_packages_are_those_of_the_lock_file(image: Image) -> None:
    (packages,) = (image.tree / "opt/starsched/lib").glob("python*/site-packages")
    got: dict[str, str] = {}
    for folder in packages.glob("*.dist-info"):
        name, _, version = folder.name.removesuffix(".dist-info").rpartition("-")
        got[canonicalize_name(name)] = version
    version = got.pop("starsched")
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    assert got == locked("requirements.lock")


def test_there_is_no_compiler_no_pip_and_no_cache(image: Image) -> None:
    environment = image.tree / "opt/starsched"
    names = {path.name for path in (environment / "bin").iterdir()}
    assert "starsched" in names
    assert not {n for n in names if n.startswith(("pip", "gcc", "cc", "go"))}
    assert not (image.tree / "root").exists()
    assert not (image.tree / "wheels").exists()
    assert not (image.tree / "src").exists()


def test_every_module_is_compiled_and_no_start_compares_it_with_its_source(image: Image) -> None:
    """The container cannot write bytecode, so what is missing is compiled at every start."""
    (package,) = (image.tree / "opt/starsched/lib").glob("python*/site-packages/engine")
    for path in package.rglob("*.py"):
        (compiled,) = (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")
        assert by_hash_alone(compiled), path
    others = list(package.parent.rglob("*.pyc"))
    assert len(others) > 1000
    assert [path for path in others if not by_hash_alone(path)] == []


def by_hash_alone(compiled: Path) -> bool:
    """True if no start compares a file of bytecode with its source."""
    # PEP 552: bit 0 is "by hash", bit 1 "compare the hash".
    with compiled.open("rb") as opened:
        header = opened.read(8)
    return int.from_bytes(header[4:], "little") == 1


def test_nothing_in_it_is_newer_than_its_commit(image: Image) -> None:
    late = [
        path
        for path in (image.tree / "opt/starsched").rglob("*")
        if path.lstat().st_mtime != int(ARGUMENTS["SOURCE_DATE_EPOCH"])
    ]
    assert late == []


def test_nothing_but_the_state_directory_can_be_written(image: Image) -> None:
    if os.geteuid() == 0:
        mode = (image.tree / "var/lib/starsched").stat()
        assert (mode.st_uid, mode.st_gid) == (image.user, image.group)
    writable = [
        path
        for path in [image.tree, *image.tree.rglob("*")]
        if not path.is_symlink() and path.stat().st_mode & 0o222
    ]
    assert [path.relative_to(image.tree) for path in writable] == [Path("var/lib/starsched")]
