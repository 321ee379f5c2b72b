#!/bin/sh
# Package:   starlark-pyo3 2026.1.3 (PyPI), Python 3.11 or newer.
# Behaviour: NaN equals itself in Starlark and is above every number; a function in Python that was
#            added with `add_callable` is given None for infinity and NaN, a list for a tuple and a
#            dict for a struct, and cannot return infinity.
# A good guess fails: `v != v` is the usual test for NaN, here it is never true; and a float that
#            goes into a function in Python comes out of it as a float, one would think. Both are
#            silent: a default of infinity is None afterwards. `v - v != 0.0` finds what is not finite.
# Seen on 29 November 2026: the lines under `want` below.
# Exits with 1 if one of them changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check starlark-pyo3==2026.1.3
"$folder/venv/bin/python" - >"$folder/got" <<'PYTHON'
import starlark

globals_ = starlark.Globals.extended_by([starlark.LibraryExtension.StructType])


def run(text, function=None):
    module = starlark.Module()
    if function is not None:
        module.add_callable("native", function)
    tree = starlark.parse("x.star", text, starlark.Dialect.standard())
    return starlark.eval(module, tree, globals_)


nan = 'float("nan")'
print("nan == nan:", run(f"{nan} == {nan}"))
print("nan != nan:", run(f"{nan} != {nan}"))
print("nan > inf:", run(f'{nan} > float("inf")'))
print("nan - nan == 0.0:", run(f"{nan} - {nan} == 0.0"))
for given in ('float("inf")', nan, "(1, 2)", "struct(a = 1)", "1.5", "1 << 70"):
    seen = []
    run(f"native({given})", lambda value, seen=seen: seen.append(repr(value)))
    print(f"native({given}) is given:", *seen)
try:
    run("native()", lambda: float("inf"))
    print("infinity returned: ok")
except starlark.StarlarkError as error:
    print("infinity returned:", "expected value" in str(error) and "expected value, an error")
PYTHON
cat >"$folder/want" <<'TEXT'
nan == nan: True
nan != nan: False
nan > inf: True
nan - nan == 0.0: False
native(float("inf")) is given: None
native(float("nan")) is given: None
native((1, 2)) is given: [1, 2]
native(struct(a = 1)) is given: {'a': 1}
native(1.5) is given: 1.5
native(1 << 70) is given: 1180591620717411303424
infinity returned: expected value, an error
TEXT
diff "$folder/want" "$folder/got"
cat "$folder/got"
