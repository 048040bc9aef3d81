"""
Sections of the catalog as plain values, and its device types.

Clusters name devices of the catalog, and the catalog's clusters are clusters: so devices stand below both.
"""

from functools import cache
from importlib.resources import as_file, files
from typing import Any

from taut.data.device import DeviceSpec
from taut.data.read_yaml import read_yaml
from taut.data.suggest import one_of
from taut.errors import DataError


@cache
def catalog_section(section: str) -> dict[str, Any]:
    """The entries of a catalog file, such as ``models``, as plain values by name."""
    with as_file(files("taut.data") / "catalog" / f"{section}.yaml") as path:
        return read_yaml(path, shipped=True)


def catalog_devices() -> dict[str, DeviceSpec]:
    """Built-in device types by name."""
    return {name: catalog_device(name) for name in catalog_section("devices")}


def catalog_device(name: str) -> DeviceSpec:
    """The built-in device type of this name."""
    return DeviceSpec.parse({"name": name, **catalog_section("devices")[name]}, f"catalog device {name}")


def device_named(name: str, where: str) -> DeviceSpec:
    """The catalog's device of a name; the ``DataError`` for an unknown one begins with ``where``, option or field."""
    if name not in catalog_section("devices"):
        raise DataError(f"{where}: is {name!r}, expected {one_of(name, catalog_section('devices'))}")
    return catalog_device(name)
