"""Writes the digest of the base image's current build into `Dockerfile`.

Asks the image's registry, by the HTTP API that all registries have, for the list of platforms that
`PYTHON_IMAGE` names now, checks that each of ours is in it, and writes the list's digest as
`PYTHON_DIGEST`. The tag stays: another version of Python is a decision, a rebuild of the same one
with newer Debian packages is not.

Run it with `make image-digests` before a release, or with `--check` to only compare.
"""

import argparse
import hashlib
import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

ROOT: Final = Path(__file__).resolve().parents[2]
PLATFORMS: Final = {"linux/amd64", "linux/arm64"}
_LISTS: Final = (
    "application/vnd.oci.image.index.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json"
)
#: The name that images of Docker Hub have, and where its API is.
_HUB: Final = {"docker.io": "registry-1.docker.io"}
_SECONDS: Final = 30
_UNAUTHORIZED: Final = 401


class Refused(Exception):
    """The registry's answer cannot be used; the text says why."""


def digest_of(image: str) -> str:
    """The digest of the list of platforms of *image*, given as `REGISTRY/PATH:TAG`.

    Raises `Refused` if it has no such list or not all of `PLATFORMS`, and `OSError` for what the
    network or the registry refuses.
    """
    registry, _, path = image.partition("/")
    name, _, tag = path.rpartition(":")
    host = _HUB.get(registry, registry)
    # As container engines do it: plain HTTP for a registry on this machine alone.
    scheme = "http" if host.partition(":")[0] in ("localhost", "127.0.0.1") else "https"
    body = _get(f"{scheme}://{host}/v2/{name}/manifests/{tag}")
    found: dict[str, Any] = json.loads(body)
    platforms = {
        f"{one['platform']['os']}/{one['platform']['architecture']}"
        for one in found.get("manifests", ())
        if "platform" in one
    }
    if missing := PLATFORMS - platforms:
        raise Refused(f"{image}: no {', '.join(sorted(missing))} among its platforms")
    # The digest is the hash of these bytes: nobody has to be believed what it is.
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _get(url: str) -> bytes:
    headers = {"Accept": _LISTS}
    try:
        return _fetched(url, headers)
    except urllib.error.HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate", "")
        if error.code != _UNAUTHORIZED or not challenge.startswith("Bearer "):
            raise
    asked = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    realm = asked.pop("realm")
    answer = json.loads(_fetched(f"{realm}?{urlencode(asked)}", {}))
    token = answer.get("token") or answer["access_token"]
    return _fetched(url, {**headers, "Authorization": f"Bearer {token}"})


def _fetched(url: str, headers: dict[str, str]) -> bytes:
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        body: bytes = answer.read()
    return body


def main() -> int:
    """Write or compare the digest and return the exit code."""
    parser = argparse.ArgumentParser(description="pin the base image by its current digest")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it differs")
    parser.add_argument("--dockerfile", type=Path, default=ROOT / "Dockerfile")
    given = parser.parse_args()
    text = given.dockerfile.read_text()
    known = dict(re.findall(r"^ARG (PYTHON_\w+)=(\S+)$", text, re.MULTILINE))
    image, old = known["PYTHON_IMAGE"], known["PYTHON_DIGEST"]
    try:
        new = digest_of(image)
    except (Refused, OSError) as error:
        print(f"image-digests: {image}: {error}", file=sys.stderr)
        return 2
    if new == old:
        print(f"{image} is at {old}")
        return 0
    print(f"{image} is at {new}, {given.dockerfile} has {old}")
    if not given.check:
        given.dockerfile.write_text(text.replace(old, new))
    return int(given.check)


if __name__ == "__main__":
    raise SystemExit(main())
