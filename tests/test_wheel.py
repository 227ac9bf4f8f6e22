"""What ``pip install`` brings."""

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from adaptntk.version import __version__

ROOT = Path(__file__).parent.parent


@pytest.mark.long
def test_the_wheel_has_all_of_the_package_and_nothing_else(tmp_path):
    # From a copy: building leaves folders behind.
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    source = tmp_path / "source"
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w"]
    subprocess.run([*command, str(tmp_path), str(source)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"adaptntk-{__version__}-py3-none-any")
    with zipfile.ZipFile(wheel) as content:
        installed = {name for name in content.namelist() if ".dist-info/" not in name}
        (metadata,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        described = Parser().parsestr(content.read(metadata).decode())
    own = source / "src" / "adaptntk"
    assert installed == {str(path.relative_to(source / "src")) for path in own.rglob("*") if path.is_file()}
    needed = {line.split(";")[0] for line in described.get_all("Requires-Dist") if "extra ==" not in line}
    assert not [line for line in needed if line.startswith(("rdkit", "h5py", "distributed", "pyscf", "bmdal"))]
