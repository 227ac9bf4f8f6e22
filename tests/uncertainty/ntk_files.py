"""Files of fitted uncertainties, taken apart and put together by somebody who knows the format."""

import json

from safetensors import safe_open
from safetensors.torch import save_file

from adaptntk.uncertainty.file_header import NO_CHECKSUM, write_checksum


def contents_of(path):
    """Header and tensors."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["adaptntk"])
        return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def write_contents(path, header, tensors, checksum=True):
    """With the checksum of these contents, or the one that stands in the header."""
    if checksum:
        header = header | {"checksum": NO_CHECKSUM}
    save_file(tensors, path, {"adaptntk": json.dumps(header, indent=1)})
    if checksum:
        write_checksum(path)
