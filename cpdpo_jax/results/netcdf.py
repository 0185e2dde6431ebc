"""Writes and reads data sets as netCDF4 files with HDF5 directly.

xarray, h5netcdf and the netCDF library can open the files: dimensions are scales, strings have variable length, and the
attribute `coordinates` names the coordinates. xarray needs half a CPU second to write the forty small variables of a
block, which is more than a short block takes to compute; this module needs a fiftieth of that.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5ds, h5f, h5g, h5p, h5s, h5t  # pyright: ignore[reportAttributeAccessIssue]

from cpdpo_jax.common import files

if TYPE_CHECKING:
    import xarray as xr

MADE_BY = b"version=2,cpdpo_jax=1"  # in _NCProperties: marks files that were written here and have a checksum

_TEXT = h5t.py_create(h5py.string_dtype(), logical=True)  # in the file: UTF-8 of variable length
_STR = h5t.py_create(h5py.string_dtype())  # in memory: Python's str
_SCALAR = h5s.create(h5s.SCALAR)
_NAMES = itertools.count()  # files in memory that are open at the same time need different names
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable.%10d"

_FORMER = {"setting": "hparams"}  # names in files of older versions


@dataclass
class Plain:
    """A data set as plain arrays, without xarray's indices."""

    variables: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, Any]]]  # dimensions, values, attributes
    coords: tuple[str, ...]  # the names of the variables that are coordinates
    attrs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Former names of variables and dimensions become the current ones."""
        self.coords = tuple(_FORMER.get(name, name) for name in self.coords)
        self.variables = {
            _FORMER.get(name, name): (tuple(_FORMER.get(dim, dim) for dim in dims), values, attrs)
            for name, (dims, values, attrs) in self.variables.items()
        }

    def dataset(self) -> xr.Dataset:
        """The data set for xarray."""
        import xarray as xr

        coords = {name: variable for name, variable in self.variables.items() if name in self.coords}
        data = {name: variable for name, variable in self.variables.items() if name not in coords}
        return xr.Dataset(data, coords=coords, attrs=self.attrs)


def encode(data: xr.Dataset) -> bytes:
    """A data set of numbers and texts as the bytes of a netCDF4 file."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_core(1 << 18, False)  # in memory
    file = h5f.create(f"block {next(_NAMES)}".encode(), h5f.ACC_TRUNC, _timeless(h5p.FILE_CREATE), access)
    try:
        _fill(file, data)
        h5f.flush(file)
        return file.get_file_image()
    finally:
        file.close()


def _timeless(kind: Any) -> Any:
    """A property list without creation times, so that equal data give equal bytes."""
    properties = h5p.create(kind)
    properties.set_obj_track_times(False)
    return properties


def _fill(file: Any, data: xr.Dataset) -> None:
    """Write the dimensions, variables and attributes of a data set."""
    created: dict[str, Any] = {}
    numbers = {str(dim): i for i, dim in enumerate(data.sizes)}
    for dim, number in numbers.items():
        bare = dim not in data.variables
        created[dim] = _dataset(file, dim, np.zeros(data.sizes[dim], ">f4") if bare else data.variables[dim].values)
        h5ds.set_scale(created[dim], (_NO_VARIABLE % data.sizes[dim] if bare else dim).encode())
        _attribute(created[dim], "_Netcdf4Dimid", np.int32(number))
    for name, variable in data.variables.items():
        dims = [str(dim) for dim in variable.dims]
        if name not in numbers:
            created[str(name)] = _dataset(file, str(name), variable.values)
            for axis, dim in enumerate(dims):
                h5ds.attach_scale(created[str(name)], created[dim], axis)
        _attribute(created[str(name)], "_Netcdf4Coordinates", np.array([numbers[dim] for dim in dims], np.int32))
        for key, value in variable.attrs.items():
            _attribute(created[str(name)], str(key), value)
    root = h5g.open(file, b"/")
    for key, value in data.attrs.items():
        _attribute(root, str(key), value)
    others = [str(name) for name in data.coords if name not in numbers]
    if others:
        _attribute(root, "coordinates", " ".join(others))
    _attribute(root, "_NCProperties", np.bytes_(MADE_BY + b",hdf5=" + h5py.version.hdf5_version.encode()))


def _dataset(file: Any, name: str, values: np.ndarray) -> Any:
    """Create a contiguous variable with its values; h5netcdf does not recognise variables without dimensions."""
    if values.dtype.kind in "OU":
        values, kind = np.ascontiguousarray(values, object), _TEXT
    elif values.dtype.kind in "fiu":
        values, kind = np.ascontiguousarray(values), h5t.py_create(values.dtype)
    else:
        raise TypeError(f"variable {name!r} has values of type {values.dtype}; give numbers or texts.")
    if not values.ndim:
        raise TypeError(f"variable {name!r} has no dimension; give an array.")
    variable = h5d.create(file, name.encode(), kind, h5s.create_simple(values.shape), _timeless(h5p.DATASET_CREATE))
    if values.size:
        variable.write(h5s.ALL, h5s.ALL, values, mtype=_STR if kind is _TEXT else kind)
    return variable


def _attribute(owner: Any, name: str, value: Any) -> None:
    """Write an attribute: a text, a number (as an array of length one, netCDF's convention), or an array of these."""
    if isinstance(value, bytes):  # fixed length, as the netCDF library requires for its attributes
        text = h5t.C_S1.copy()
        text.set_size(len(value) + 1)
        h5a.create(owner, name.encode(), text, _SCALAR).write(np.array(value, f"S{len(value) + 1}"))
    elif isinstance(value, str):
        h5a.create(owner, name.encode(), _TEXT, _SCALAR).write(np.array(value, object), mtype=_STR)
    elif type(value) is np.int32:  # an attribute of the netCDF library
        h5a.create(owner, name.encode(), h5t.NATIVE_INT32, _SCALAR).write(np.array(value))
    else:
        array = np.atleast_1d(np.asarray(value))
        if array.dtype.kind in "OU":
            array, kind = array.astype(object), _TEXT
        elif array.dtype.kind in "fiu":
            kind = h5t.py_create(array.dtype)
        else:
            raise TypeError(f"attribute {name!r} is {value!r}; give numbers or texts.")
        h5a.create(owner, name.encode(), kind, h5s.create_simple(array.shape)).write(
            array, mtype=_STR if kind is _TEXT else kind
        )


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
    file = h5f.open_file_image(content)
    try:
        return _read(file)
    finally:
        file.close()


_HDF5_ATTRIBUTES = {"CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST"}  # HDF5's bookkeeping of scales


def _read(file: Any) -> Plain:
    """The data set in an open file."""
    names: list[str] = []
    root = h5g.open(file, b"/")
    stored, dims = {}, {}
    root.links.iterate(lambda name: names.append(name.decode()))
    for name in names:
        variable = h5d.open(file, name.encode())
        attributes = _attributes(variable)
        stored[name] = variable, attributes
        if "_Netcdf4Dimid" in attributes:
            dims[int(attributes.pop("_Netcdf4Dimid"))] = name
    variables = {}
    for name, (variable, attributes) in stored.items():
        numbers = attributes.pop("_Netcdf4Coordinates", None)
        if numbers is not None:  # None: a dimension without a variable
            variables[name] = (tuple(dims[int(i)] for i in numbers), _values(variable), attributes)
    attrs = _attributes(root)
    attrs.pop("_NCProperties", None)
    coords = (*dims.values(), *attrs.pop("coordinates", "").split())
    return Plain(variables, tuple(name for name in coords if name in variables), attrs)


def _values(variable: Any) -> np.ndarray:
    kind = variable.get_type()
    values = np.empty(variable.shape, object if isinstance(kind, h5t.TypeStringID) else variable.dtype)
    if values.size:
        variable.read(h5s.ALL, h5s.ALL, values, mtype=_STR if values.dtype == object else None)
    if values.dtype == object:
        texts = [text.decode() if isinstance(text, bytes) else str(text) for text in values.ravel()]
        values = np.array(texts, object).reshape(values.shape)
    return values


def _attributes(owner: Any) -> dict[str, Any]:
    names: list[str] = []
    h5a.iterate(owner, lambda name, *_: names.append(name.decode()))
    return {name: _value(owner, name) for name in names if name not in _HDF5_ATTRIBUTES}


def _value(owner: Any, name: str) -> Any:
    """The value of an attribute; like xarray, the element of an array of length one."""
    attribute = h5a.open(owner, name.encode())
    kind = attribute.get_type()
    text = isinstance(kind, h5t.TypeStringID)
    value = np.empty(attribute.shape, attribute.dtype)
    if value.size:
        attribute.read(value, mtype=_STR if value.dtype == object else None)
    if text:
        texts: list[Any] = value.ravel().tolist()
        value = np.array([entry.decode() for entry in texts], object).reshape(value.shape)
    if name != "_Netcdf4Coordinates" and value.size == 1:
        return value.ravel()[0]
    return value.tolist() if text else value
