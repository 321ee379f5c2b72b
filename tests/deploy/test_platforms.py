"""Every package that the image holds is there for each platform, and is of that platform."""

import zipfile

import pytest
from packaging.markers import Marker
from packaging.utils import canonicalize_name, parse_wheel_filename

from tests.deploy.locks import locked, markers
from tests.scripts import script

#: Platform: what an ELF header calls its machine.
_MACHINES = {"amd64": 62, "arm64": 183}


def wanted(machine: str, python: str) -> set[str]:
    """The packages of the lock file that a container on *machine* installs."""
    linux = {
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "python_version": python,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    return {
        name
        for name, marker in markers("requirements.lock").items()
        if not marker or Marker(marker).evaluate(linux)
    }


@pytest.mark.slow("unpacks the wheels of two platforms")
@pytest.mark.parametrize("platform", _MACHINES)
def test_every_package_has_a_wheel_that_unpacks_and_is_compiled_for(platform: str) -> None:
    fetch = script("devkit/tools/wheels.py")
    pins = locked("requirements.lock")
    compiled, found = 0, set()
    for path in fetch.wheels(platform).iterdir():
        name, version, _, _ = parse_wheel_filename(path.name)
        found.add(canonicalize_name(name))
        assert str(version) == pins[canonicalize_name(name)]
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None, path.name
            for member in archive.namelist():
                with archive.open(member) as opened:
                    header = opened.read(20)
                if header.startswith(b"\x7fELF"):
                    compiled += 1
                    machine = int.from_bytes(header[18:20], "little")
                    assert machine == _MACHINES[platform], f"{path.name}: {member}"
    assert found == wanted(fetch.PLATFORMS[platform], fetch.image_python())
    assert compiled > 30
