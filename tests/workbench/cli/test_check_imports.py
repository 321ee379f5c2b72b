"""Which modules `starsched check` of one file loads: editors run it on each save."""

import subprocess
import sys
from pathlib import Path
from typing import Final

_LARGE: Final = (
    "email",
    "google.protobuf",
    "numpy",
    "rich",
    "ssl",
    "structlog",
    "asyncio",
    "engine.core.scheduling",
    "workbench.comparing.population",
    "engine.files.cluster_file",
)
_CHECK: Final = """
import sys
from workbench.cli.main import main
try:
    main(["check", sys.argv[1]])
finally:
    print("loaded:", *sorted(sys.modules))
"""


def test_check_of_one_file_loads_nothing_that_decides_or_reads_clusters(tmp_path: Path) -> None:
    file = tmp_path / "a.star"
    file.write_text('"""A."""\n\ndef filter(pod, node):\n    return None\n')
    ran = subprocess.run(
        [sys.executable, "-c", _CHECK, str(file)], capture_output=True, text=True, check=True
    )
    assert "no problems" in ran.stdout
    loaded = ran.stdout.partition("loaded: ")[2].split()
    assert [one for one in loaded if one.startswith(_LARGE)] == []
