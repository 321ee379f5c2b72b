"""Builds the image's file tree without a container engine, by doing what the Dockerfile says.

Owns a small interpreter of the Dockerfile: the instructions that ours uses, each stage in a folder
of its own, every absolute path of the image inside it. The base image is a copy of the running
Python with pip. Nothing outside the folder is written to (pip's cache aside).
"""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pip

ROOT = Path(__file__).resolve().parents[2]

#: What a base image's standard library comes without, and what we would copy in vain.
_LEFT_OUT = ("site-packages", "test", "tests", "idlelib", "tkinter", "__pycache__", "config-*")

#: What a base image says of its Debian packages.
_DEBIAN = {
    "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nVERSION_ID="13"\nID=debian\n',
    "var/lib/dpkg/status": """\
Package: libc6
Status: install ok installed
Architecture: amd64
Multi-Arch: same
Version: 2.41-12+deb13u1
Description: GNU C Library: Shared libraries
 Contains the standard libraries that are used by nearly all programs.

Package: libstdc++6
Status: install ok installed
Architecture: amd64
Version: 14.2.0-19

Package: vim
Status: deinstall ok config-files
Architecture: amd64
Version: 2:9.1.1230-2
""",
}


@dataclass(frozen=True)
class Instruction:
    """One instruction: its name, and the rest of the logical line."""

    name: str
    text: str


@dataclass
class Stage:
    """One `FROM` and what follows it."""

    base: str
    name: str
    arguments: dict[str, str] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)

    def last(self, name: str) -> str:
        """The text of the last instruction *name*, the one in force."""
        return [i.text for i in self.instructions if i.name == name][-1]


@dataclass
class Image:
    """What the last stage leaves: its tree and how a container of it starts."""

    tree: Path
    environment: dict[str, str]
    entrypoint: list[str]
    user: int
    group: int
    labels: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        """The start command of a container with *arguments*, as a path of this machine."""
        path = self.environment["PATH"]
        program = shutil.which(self.entrypoint[0], path=path)
        assert program is not None, f"no `{self.entrypoint[0]}` in {path}"
        return [program, *self.entrypoint[1:], *arguments]


def parse(text: str) -> tuple[dict[str, str], list[Stage]]:
    """The arguments before the first `FROM`, and the stages."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for instruction in _instructions(text):
        if instruction.name == "FROM":
            base, _, name = instruction.text.partition(" AS ")
            stages.append(Stage(_expand(base, arguments), name, arguments))
        elif stages:
            stages[-1].instructions.append(instruction)
        else:
            assert instruction.name == "ARG", instruction
            name, _, value = instruction.text.partition("=")
            arguments[name] = value
    return arguments, stages


def build(
    workspace: Path, context: Path = ROOT, arguments: Mapping[str, str] | None = None
) -> Image:
    """Build the last stage under *workspace* with *arguments* and return it."""
    _, stages = parse((context / "Dockerfile").read_text())
    base = workspace / "base"
    if not base.is_dir():
        _make_base(base)
    # Every stage is built in the same place and then moved: an environment knows its own path, and
    # in the image that is the same path in every stage too.
    tree = workspace / "image"
    done: dict[str, Path] = {}
    for stage in stages:
        shutil.copytree(base, tree, symlinks=True, copy_function=os.link)
        builder = _Builder(tree, stage, done, context, arguments or {})
        builder.run()
        if stage is not stages[-1]:
            done[stage.name] = tree.rename(workspace / f"stage-{stage.name}")
    user, _, group = stages[-1].last("USER").partition(":")
    entrypoint = _json_list(stages[-1].last("ENTRYPOINT"))
    return Image(tree, builder.environment, entrypoint, int(user), int(group), builder.labels)


def sent_to_the_engine(context: Path) -> Iterator[str]:
    """The files of *context* that `.dockerignore` lets through, as relative paths."""
    patterns = [
        line.strip()
        for line in (context / ".dockerignore").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    for folder, folders, names in os.walk(context):
        relative = Path(folder).relative_to(context)
        if relative == Path():
            # Nothing in it is ever sent; walking it would take as long as everything else.
            folders[:] = [f for f in folders if f not in (".venv", ".git")]
        for name in names:
            path = (relative / name).as_posix()
            if not _is_ignored(path, patterns):
                yield path


def _is_ignored(path: str, patterns: list[str]) -> bool:
    ignored = False
    parents = [path, *(p.as_posix() for p in PurePosixPath(path).parents)][:-1]
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        # `**/x` matches at any depth, and a pattern that matches a folder matches what is in it.
        names = parents if not bare.startswith("**/") else [p.rpartition("/")[2] for p in parents]
        if any(fnmatch.fnmatchcase(name, bare.removeprefix("**/")) for name in names):
            ignored = not pattern.startswith("!")
    return ignored


class _Builder:
    """Runs the instructions of one stage in the folder *tree*."""

    def __init__(
        self,
        tree: Path,
        stage: Stage,
        done: dict[str, Path],
        context: Path,
        given: Mapping[str, str],
    ) -> None:
        self._tree = tree
        self._given = given
        self._stage = stage
        self._done = done
        self._context = context
        self._workdir = tree
        # As a base image has it, then what a build needs of ours: a proxy, pip's own settings.
        self.environment = {"PATH": f"{tree}/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        self._arguments: dict[str, str] = {}
        self.labels: dict[str, str] = {}

    def run(self) -> None:
        for instruction in self._stage.instructions:
            getattr(self, f"_do_{instruction.name.lower()}")(instruction.text)

    def _do_workdir(self, text: str) -> None:
        self._workdir = Path(self._inside(text))
        self._workdir.mkdir(parents=True, exist_ok=True)

    def _do_arg(self, text: str) -> None:
        name, _, default = text.partition("=")
        before = self._stage.arguments.get(name, default)
        self._arguments[name] = self._given.get(name, before)

    def _do_env(self, text: str) -> None:
        for pair in shlex.split(text):
            name, _, value = pair.partition("=")
            self.environment[name] = _expand(self._inside(value), self.environment)

    def _do_copy(self, text: str) -> None:
        *sources, target = text.split()
        destination = (self._workdir / self._inside(target)).resolve()
        if sources[0].startswith("--from="):
            origin = self._done[sources.pop(0).removeprefix("--from=")]
            for source in sources:
                shutil.copytree(origin / source.lstrip("/"), destination, symlinks=True)
            return
        sent = list(sent_to_the_engine(self._context))
        for source in sources:
            if source in sent:
                is_folder = target.endswith("/")
                destination.mkdir(parents=True, exist_ok=True)
                assert is_folder, "want a target that ends with `/` for files"
                shutil.copy2(self._context / source, destination / Path(source).name)
                continue
            inside = [name for name in sent if name.startswith(f"{source}/")]
            assert inside, f"COPY {source}: .dockerignore lets nothing of it through"
            for name in inside:
                copy = destination / Path(name).relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self._context / name, copy)

    def _do_run(self, text: str) -> None:
        command = self._inside(text)
        if os.geteuid() != 0:
            # Only root can give files away; for anybody else the tree is their own anyway.
            command = re.sub(r" -[og] \d+", "", command)
        result = subprocess.run(
            ["/bin/sh", "-euc", command],
            cwd=self._workdir,
            # The cache of pip is no file of the image: it is only why this takes seconds.
            env={
                **_network_settings(),
                **self._arguments,
                **self.environment,
                "PIP_NO_CACHE_DIR": "",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"RUN {text}\n{result.stdout}\n{result.stderr}"

    def _do_label(self, text: str) -> None:
        for pair in shlex.split(text):
            name, _, value = pair.partition("=")
            self.labels[name] = _expand(value, self._arguments)

    def _do_user(self, text: str) -> None:
        """Leaves no files."""

    _do_expose = _do_entrypoint = _do_cmd = _do_user

    def _inside(self, text: str) -> str:
        """*text* with every absolute path moved into the tree."""
        return re.sub(r"(^|[\s=:\"])/(?=[a-z])", rf"\1{self._tree}/", text)


def _make_base(target: Path) -> None:
    """A stand-in for the base image: Python and pip under `usr/local`, and dpkg's list."""
    for name, text in _DEBIAN.items():
        (target / name).parent.mkdir(parents=True)
        (target / name).write_text(text)
    lib = target / "usr/local/lib"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        lib / version,
        symlinks=True,
        ignore=shutil.ignore_patterns(*_LEFT_OUT),
    )
    packages = lib / version / "site-packages"
    packages.mkdir()
    shutil.copytree(Path(pip.__file__).parent, packages / "pip")
    bin_folder = target / "usr/local/bin"
    bin_folder.mkdir(parents=True)
    executable = Path(os.path.realpath(sys.executable))
    shutil.copy2(executable, bin_folder / version)
    for name in ("python3", "python"):
        (bin_folder / name).symlink_to(version)
    shared = sysconfig.get_config_var("INSTSONAME")
    folder = sysconfig.get_config_var("LIBDIR")
    if shared and folder and (Path(folder) / shared).is_file():
        shutil.copy2(Path(folder) / shared, lib / shared)
        _look_for_libraries_beside(bin_folder / version, folder)


def _look_for_libraries_beside(program: Path, folder: str) -> None:
    """Make *program* find its library relative to itself, where it looked in *folder*.

    The folder may be closed to the image's user, and the sandbox of policies starts a Python with
    an empty environment, so no variable can say where to look.
    """
    known, neighbour = folder.encode(), b"$ORIGIN/../lib"
    if len(neighbour) <= len(known):
        # In place: texts in the program may become shorter, not longer.
        text = program.read_bytes().replace(known + b"\0", neighbour.ljust(len(known) + 1, b"\0"))
        program.write_bytes(text)


def _network_settings() -> dict[str, str]:
    """Of our environment, what says how packages are fetched."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name.lower().endswith("_proxy") or name == "HOME"
    }


def _instructions(text: str) -> Iterator[Instruction]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    logical = re.sub(r"\\\n\s*", "", "\n".join(lines))
    for line in logical.splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield Instruction(name, rest.strip())


def _expand(text: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: variables[match[1]], text)


def _json_list(text: str) -> list[str]:
    found: list[str] = json.loads(text)
    return found
