"""Writes and reads data sets as netCDF4 files with h5py.

xarray, h5netcdf and the netCDF library can open the files: dimensions are scales, strings have variable length, and the
attribute `coordinates` names the coordinates. xarray needs half a CPU second to write the forty small variables of a
block, which is more than a short block takes to compute; this module needs a fortieth of that.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from cpdpo_jax.common import files, former_names

if TYPE_CHECKING:
    import xarray as xr

MADE_BY = b"version=2,cpdpo_jax=1"  # in _NCProperties: marks files that were written here and have a checksum

_TEXT = h5py.string_dtype()  # UTF-8 of variable length
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable.%10d"
_HDF5_ATTRIBUTES = {"CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST"}  # HDF5's bookkeeping of scales


@dataclass
class Plain:
    """A data set as plain arrays, without xarray's indices."""

    variables: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, Any]]]  # dimensions, values, attributes
    coords: tuple[str, ...]  # the names of the variables that are coordinates
    attrs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Former names of variables and dimensions become the current ones."""
        former = former_names.STORED
        self.coords = tuple(former.get(name, name) for name in self.coords)
        self.variables = {
            former.get(name, name): (tuple(former.get(dim, dim) for dim in dims), values, attrs)
            for name, (dims, values, attrs) in self.variables.items()
        }

    def dataset(self) -> xr.Dataset:
        """The data set for xarray."""
        import xarray as xr

        coords = {name: variable for name, variable in self.variables.items() if name in self.coords}
        data = {name: variable for name, variable in self.variables.items() if name not in coords}
        return xr.Dataset(data, coords=coords, attrs=self.attrs)


def encode(data: xr.Dataset) -> bytes:
    """A data set of numbers and texts as the bytes of a netCDF4 file; equal data give equal bytes."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        _fill(file, data)
    return buffer.getvalue()


def _fill(file: h5py.File, data: xr.Dataset) -> None:
    """Write the dimensions, variables and attributes of a data set."""
    created: dict[str, h5py.Dataset] = {}
    numbers = {str(dim): i for i, dim in enumerate(data.sizes)}
    for dim, number in numbers.items():
        bare = dim not in data.variables
        created[dim] = _variable(file, dim, np.zeros(data.sizes[dim], ">f4") if bare else data.variables[dim].values)
        created[dim].make_scale(_NO_VARIABLE % data.sizes[dim] if bare else dim)
        created[dim].attrs["_Netcdf4Dimid"] = np.int32(number)
    for name, variable in data.variables.items():
        dims = [str(dim) for dim in variable.dims]
        if name not in numbers:
            created[str(name)] = _variable(file, str(name), variable.values)
            for axis, dim in enumerate(dims):
                created[str(name)].dims[axis].attach_scale(created[dim])
        created[str(name)].attrs["_Netcdf4Coordinates"] = np.array([numbers[dim] for dim in dims], np.int32)
        _set_attributes(created[str(name)], variable.attrs)
    others = [str(name) for name in data.coords if name not in numbers]
    _set_attributes(file, data.attrs | ({"coordinates": " ".join(others)} if others else {}))
    file.attrs["_NCProperties"] = np.bytes_(MADE_BY + b",hdf5=" + h5py.version.hdf5_version.encode())


def _variable(file: h5py.File, name: str, values: np.ndarray) -> h5py.Dataset:
    """Create a variable with its values; h5netcdf does not recognise variables without dimensions."""
    if values.dtype.kind not in "OUfiu":
        raise TypeError(f"variable {name!r} has values of type {values.dtype}; give numbers or texts.")
    if not values.ndim:
        raise TypeError(f"variable {name!r} has no dimension; give an array.")
    if values.dtype.kind in "OU":
        return file.create_dataset(name, data=values.astype(object), dtype=_TEXT)
    return file.create_dataset(name, data=values)


def _set_attributes(owner: h5py.Dataset | h5py.File, attributes: Any) -> None:
    """Write attributes: texts, numbers (as arrays of length one, netCDF's convention), or arrays of these."""
    for name, value in attributes.items():
        array = np.asarray(value, object) if isinstance(value, str) else np.atleast_1d(np.asarray(value))
        if array.dtype.kind not in "OUfiu":
            raise TypeError(f"attribute {name!r} is {value!r}; give numbers or texts.")
        text = array.dtype.kind in "OU"
        owner.attrs.create(str(name), array.astype(object) if text else array, dtype=_TEXT if text else None)


def read(path: Path) -> Plain:
    """Read a file that `encode` wrote, with its checksum verified, or another file that xarray can read."""
    content = path.read_bytes()
    try:
        body = files.unseal(content)
        if body is None and MADE_BY in content:
            raise files.DamagedError("its end with the checksum is missing")
        if body is not None and MADE_BY in body:
            return decode(body)
    except files.DamagedError as error:
        raise files.DamagedError(f"{path} is damaged: {error}; create it again.") from error
    return _foreign(path)


def _foreign(path: Path) -> Plain:
    """Read a file that was not written here with xarray."""
    import xarray as xr

    try:
        with xr.open_dataset(path, engine="h5netcdf") as file:
            data = file.load()
    except Exception as error:  # HDF5 and its readers have no common exception
        raise ValueError(f"{path} is not a netCDF4 file that can be read ({type(error).__name__}: {error}).") from error
    variables = {
        str(name): (tuple(map(str, variable.dims)), variable.values, dict(variable.attrs))
        for name, variable in data.variables.items()
    }
    return Plain(variables, tuple(map(str, data.coords)), dict(data.attrs))


def decode(content: bytes) -> Plain:
    """The data set in the bytes that `encode` wrote."""
    with h5py.File(io.BytesIO(content), "r") as file:
        attributes = {name: _attributes(variable) for name, variable in file.items()}
        dims = {int(found.pop("_Netcdf4Dimid")): name for name, found in attributes.items() if "_Netcdf4Dimid" in found}
        variables = {}
        for name, found in attributes.items():
            numbers = found.pop("_Netcdf4Coordinates", None)
            if numbers is not None:  # None: a dimension without a variable
                variables[name] = (tuple(dims[int(i)] for i in np.atleast_1d(numbers)), _values(file[name]), found)
        attrs = _attributes(file)
    attrs.pop("_NCProperties", None)
    coords = (*dims.values(), *attrs.pop("coordinates", "").split())
    return Plain(variables, tuple(name for name in coords if name in variables), attrs)


def _values(variable: Any) -> np.ndarray:
    return variable.asstr()[()] if h5py.check_string_dtype(variable.dtype) else variable[()]


def _attributes(owner: Any) -> dict[str, Any]:
    """The attributes of a variable or file; like xarray, the element of an array of length one."""
    found = {}
    for name in owner.attrs:
        if name not in _HDF5_ATTRIBUTES:
            value = owner.attrs[name]
            value = value[0] if np.shape(value) == (1,) else value
            found[name] = value.tolist() if isinstance(value, np.ndarray) and value.dtype.kind == "O" else value
    return found
