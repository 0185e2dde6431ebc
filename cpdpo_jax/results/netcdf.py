"""A data set as a netCDF4 file, written and read by HDF5 directly.

The files are those that xarray, h5netcdf and the netCDF library open: dimensions are scales, strings are of variable
length, coordinates are named in the attribute `coordinates`. xarray's own way takes half a second of a core for the
forty small variables of a block, which is more than a short block takes to compute; this takes a fiftieth.
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

MADE_BY = b"version=2,cpdpo_jax=1"  # in the file's _NCProperties: it was written here, and sealed

_TEXT = h5t.py_create(h5py.string_dtype(), logical=True)  # in the file: UTF-8 of any length
_STR = h5t.py_create(h5py.string_dtype())  # the same in memory: Python's str
_SCALAR = h5s.create(h5s.SCALAR)
_NAMES = itertools.count()  # files in memory that are open at once have different names
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable.%10d"


@dataclass
class Plain:
    """A data set in plain arrays: what is read, before xarray makes its indices."""

    variables: dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, Any]]]  # dimensions, values, attributes
    coords: tuple[str, ...]  # those of the variables that are coordinates
    attrs: dict[str, Any] = field(default_factory=dict)

    def dataset(self) -> xr.Dataset:
        """The same for xarray."""
        import xarray as xr

        coords = {name: one for name, one in self.variables.items() if name in self.coords}
        data = {name: one for name, one in self.variables.items() if name not in coords}
        return xr.Dataset(data, coords=coords, attrs=self.attrs)


def encode(data: xr.Dataset) -> bytes:
    """A netCDF4 file's bytes; numbers, texts and their arrays."""
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
    """How to make something without the time at which it was made: the same data are the same bytes."""
    made = h5p.create(kind)
    made.set_obj_track_times(False)
    return made


def _fill(file: Any, data: xr.Dataset) -> None:
    made: dict[str, Any] = {}
    numbers = {str(dim): i for i, dim in enumerate(data.sizes)}
    for dim, number in numbers.items():
        alone = dim not in data.variables
        made[dim] = _dataset(file, dim, np.zeros(data.sizes[dim], ">f4") if alone else data.variables[dim].values)
        h5ds.set_scale(made[dim], (_NO_VARIABLE % data.sizes[dim] if alone else dim).encode())
        _attribute(made[dim], "_Netcdf4Dimid", np.int32(number))
    for name, variable in data.variables.items():
        dims = [str(dim) for dim in variable.dims]
        if name not in numbers:
            made[str(name)] = _dataset(file, str(name), variable.values)
            for axis, dim in enumerate(dims):
                h5ds.attach_scale(made[str(name)], made[dim], axis)
        _attribute(made[str(name)], "_Netcdf4Coordinates", np.array([numbers[dim] for dim in dims], np.int32))
        for key, value in variable.attrs.items():
            _attribute(made[str(name)], str(key), value)
    root = h5g.open(file, b"/")
    for key, value in data.attrs.items():
        _attribute(root, str(key), value)
    beside = [str(name) for name in data.coords if name not in numbers]
    if beside:
        _attribute(root, "coordinates", " ".join(beside))
    _attribute(root, "_NCProperties", np.bytes_(MADE_BY + b",hdf5=" + h5py.version.hdf5_version.encode()))


def _dataset(file: Any, name: str, values: np.ndarray) -> Any:
    """A variable with its values, all in one piece; h5netcdf does not know one without dimensions for what it is."""
    if values.dtype.kind in "OU":
        values, kind = np.ascontiguousarray(values, object), _TEXT
    elif values.dtype.kind in "fiu":
        values, kind = np.ascontiguousarray(values), h5t.py_create(values.dtype)
    else:
        raise TypeError(f"variable {name!r} has values of type {values.dtype}; numbers and texts can be stored.")
    if not values.ndim:
        raise TypeError(f"variable {name!r} has no dimension; arrays can be stored.")
    made = h5d.create(file, name.encode(), kind, h5s.create_simple(values.shape), _timeless(h5p.DATASET_CREATE))
    if values.size:
        made.write(h5s.ALL, h5s.ALL, values, mtype=_STR if kind is _TEXT else kind)
    return made


def _attribute(owner: Any, name: str, value: Any) -> None:
    """A text, a number (as an array of one, as in all netCDF files) or an array of numbers or texts."""
    if isinstance(value, bytes):  # fixed length, as the netCDF library wants of its own
        text = h5t.C_S1.copy()
        text.set_size(len(value) + 1)
        h5a.create(owner, name.encode(), text, _SCALAR).write(np.array(value, f"S{len(value) + 1}"))
    elif isinstance(value, str):
        h5a.create(owner, name.encode(), _TEXT, _SCALAR).write(np.array(value, object), mtype=_STR)
    elif type(value) is np.int32:  # one of netCDF's own
        h5a.create(owner, name.encode(), h5t.NATIVE_INT32, _SCALAR).write(np.array(value))
    else:
        array = np.atleast_1d(np.asarray(value))
        if array.dtype.kind in "OU":
            array, kind = array.astype(object), _TEXT
        elif array.dtype.kind in "fiu":
            kind = h5t.py_create(array.dtype)
        else:
            raise TypeError(f"attribute {name!r} is {value!r}; numbers and texts can be stored.")
        h5a.create(owner, name.encode(), kind, h5s.create_simple(array.shape)).write(
            array, mtype=_STR if kind is _TEXT else kind
        )


def read(path: Path) -> Plain:
    """A file that `encode` wrote, its seal verified, or one that xarray can read; an error names it."""
    content = path.read_bytes()
    try:
        body = files.unsealed(content)
        if body is None and MADE_BY in content:
            raise files.DamagedError("its end, with the checksum it was written with, is lost")
        if body is not None and MADE_BY in body:
            return decode(body)
    except files.DamagedError as error:
        raise files.DamagedError(f"{path} is damaged: {error}; make it again.") from error
    return _foreign(path)


def _foreign(path: Path) -> Plain:
    """What xarray makes of a file that was not written here."""
    import xarray as xr

    try:
        with xr.open_dataset(path, engine="h5netcdf") as file:
            data = file.load()
    except Exception as error:  # HDF5 and its readers have no common one
        raise ValueError(f"{path} is not a netCDF4 file that can be read ({type(error).__name__}: {error}).") from error
    variables = {
        str(name): (tuple(map(str, one.dims)), one.values, dict(one.attrs)) for name, one in data.variables.items()
    }
    return Plain(variables, tuple(map(str, data.coords)), dict(data.attrs))


def decode(content: bytes) -> Plain:
    """What `encode` wrote."""
    file = h5f.open_file_image(content)
    try:
        return _read(file)
    finally:
        file.close()


_OF_HDF5 = {"CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST"}  # how it keeps scales


def _read(file: Any) -> Plain:
    names: list[str] = []
    root = h5g.open(file, b"/")
    found, dims = {}, {}
    root.links.iterate(lambda name: names.append(name.decode()))
    for name in names:
        one = h5d.open(file, name.encode())
        attributes = _attributes(one)
        found[name] = one, attributes
        if "_Netcdf4Dimid" in attributes:
            dims[int(attributes.pop("_Netcdf4Dimid"))] = name
    variables = {}
    for name, (one, attributes) in found.items():
        at = attributes.pop("_Netcdf4Coordinates", None)
        if at is not None:  # else a dimension alone
            variables[name] = (tuple(dims[int(i)] for i in at), _values(one), attributes)
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
        texts = [one.decode() if isinstance(one, bytes) else str(one) for one in values.ravel()]
        values = np.array(texts, object).reshape(values.shape)
    return values


def _attributes(owner: Any) -> dict[str, Any]:
    names: list[str] = []
    h5a.iterate(owner, lambda name, *_: names.append(name.decode()))
    return {name: _value(owner, name) for name in names if name not in _OF_HDF5}


def _value(owner: Any, name: str) -> Any:
    """As xarray has it: an array of one is its element."""
    attribute = h5a.open(owner, name.encode())
    kind = attribute.get_type()
    text = isinstance(kind, h5t.TypeStringID)
    value = np.empty(attribute.shape, attribute.dtype)
    if value.size:
        attribute.read(value, mtype=_STR if value.dtype == object else None)
    if text:
        texts: list[Any] = value.ravel().tolist()
        value = np.array([one.decode() for one in texts], object).reshape(value.shape)
    if name != "_Netcdf4Coordinates" and value.size == 1:
        return value.ravel()[0]
    return value.tolist() if text else value
