"""The package as it is installed: what it needs, what wheel and sdist hold, and both in an environment of their own."""

import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from support.project import GPT2, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = {"torch", "transformers", "snakemake", "matplotlib", "accelerate", "scikit-learn"}

TRY = """
import sys
import numpy as np
import headspaces as hs
rng = np.random.default_rng(0)
model = hs.load({kind: rng.normal(size=(3, 4, 16, 2)) for kind in "OQKV"})
assert len(model.top_pairs("OK", k=3)) == 3
from headspaces.library.exporting import export
from pathlib import Path
export(model, Path("overlaps.h5"))
with hs.read("overlaps.h5") as tree:
    assert tree["cross/OK/rho"].dims[0] == "writer_layer"
try:
    hs.plot.layers(model)
except hs.InputError as error:
    assert "pip install 'headspaces[plot]'" in str(error)
else:
    raise AssertionError("drawn without matplotlib")
assert not {"torch", "transformers", "snakemake", "matplotlib"} & set(sys.modules)
print(hs.__file__)
"""

GPT2_PAIRS = """
import sys, time
import headspaces as hs
frame = hs.load(sys.argv[1], fold=False).top_pairs("OK", k=3)
found = [(row.writer, row.reader, round(row.pk, 1)) for row in frame.itertuples()]
assert found == [("4.11", "5.1", 39.3), ("4.7", "5.1", 38.4), ("4.11", "6.9", 38.4)], found
assert time.process_time() < 5, time.process_time()
assert "torch" not in sys.modules
"""


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[><=\[]", requirement)[0].lower() for requirement in requirements}


def test_the_library_needs_nothing_heavy() -> None:
    assert not names(PROJECT["dependencies"]) & HEAVY
    extras = PROJECT["optional-dependencies"]
    assert set(extras) == {"plot", "run", "workflow", "slurm", "dev", "docs"}
    assert names(extras["run"] + extras["plot"] + extras["workflow"]) >= HEAVY


def test_the_lock_holds_what_the_package_needs() -> None:
    lock = {line.split("==")[0].lower() for line in (ROOT / "requirements.lock").read_text().splitlines()}
    extras = PROJECT["optional-dependencies"]
    asked = names(PROJECT["dependencies"] + [name for group in extras.values() for name in group])
    assert {name.replace("_", "-") for name in asked - {"headspaces"}} <= {name.replace("_", "-") for name in lock}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and an sdist, built from a copy: nothing is left among the sources."""
    folder = tmp_path_factory.mktemp("built")
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file() and (name.startswith("src/") or "/" not in name):
            (folder / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "copy" / name).write_bytes((ROOT / name).read_bytes())
    build = "import setuptools.build_meta as b; b.build_sdist('../dist')"
    subprocess.run([sys.executable, "-c", build], cwd=folder / "copy", check=True, capture_output=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", "../dist", "."], cwd=folder / "copy", check=True, capture_output=True)
    return folder / "dist"


@pytest.mark.campaign
def test_wheel_and_sdist_hold_every_file_of_the_package(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    expected = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "headspaces").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        assert (
            "headspaces = headspaces.command_line:main"
            in archive.read(next(name for name in held if name.endswith("entry_points.txt"))).decode()
        )
    assert {name for name in held if ".dist-info/" not in name} == expected
    with tarfile.open(sdist) as archive:
        found = {name.split("/src/")[1] for name in archive.getnames() if "/src/headspaces/" in name}
    assert expected <= found


@pytest.mark.campaign
@pytest.mark.parametrize("pattern", ["*.whl", "*.tar.gz"])
def test_the_library_works_in_an_empty_environment(pattern: str, built: Path, tmp_path: Path) -> None:
    (package,) = built.glob(pattern)
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(package)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    environment = {"PATH": str(tmp_path / "env" / "bin"), "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [python, "-c", TRY], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert found.returncode == 0, found.stderr
    assert Path(found.stdout.strip()).is_relative_to(tmp_path / "env")
    if GPT2.is_dir():
        found = subprocess.run(
            [python, "-c", GPT2_PAIRS, str(GPT2)], capture_output=True, text=True, check=False, cwd=tmp_path,
            env=environment,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr
    shown = subprocess.run(
        [tmp_path / "env" / "bin" / "headspaces", "--help"], capture_output=True, text=True, check=True, cwd=tmp_path,
        env=environment,
    )  # fmt: skip
    assert "export" in shown.stdout
