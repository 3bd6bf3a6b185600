"""One array reads the same in every format and axis order, in part or whole."""

import io
import zipfile

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from sgno.errors import InputError
from sgno.io import source as source_module
from sgno.io.source import JoinedSource, array_source, open_source, source_keys

SHAPE = (5, 7, 2, 6, 4)
LAYOUTS = {
    None: (0, 1, 2, 3, 4),
    "sample time channel x y": (0, 1, 2, 3, 4),
    "sample time space channel": (0, 1, 3, 4, 2),
    "time sample space channel": (1, 0, 3, 4, 2),
    "samples, times, y, x, channels": (0, 1, 4, 3, 2),
    "channel y time x sample": (2, 4, 1, 3, 0),
}


def trajectories(shape=SHAPE) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def write(path, array, key="u"):
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        (np.savez_compressed if "packed" in path.stem else np.savez)(path, **{key: array})
    elif path.suffix == ".zarr":
        zarr.open_group(str(path), mode="w").create_array(key, data=np.ascontiguousarray(array))
    else:
        with h5py.File(path, "w") as file:
            file[key] = array
    return path


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "packed.npz", "a.h5", "a.zarr"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_format_and_axis_order_reads_the_same(tmp_path, name, layout):
    u = trajectories()
    source = open_source(write(tmp_path / name, u.transpose(LAYOUTS[layout])), layout=layout)
    assert source.shape == SHAPE and source.grid.points == (6, 4)
    np.testing.assert_array_equal(source.read(), u)
    np.testing.assert_array_equal(source.read(slice(1, 4, 2), [6, 0, 1, 2]), u[1:4:2][:, [6, 0, 1, 2]])
    assert source.id() == array_source(u).id() != array_source(u + 1).id()


@given(
    i=st.lists(st.integers(0, SHAPE[0] - 1), max_size=6),
    t=st.lists(st.integers(0, SHAPE[1] - 1), max_size=6),
    part=st.sampled_from([1, 50, 500, 10**6]),
)
@settings(max_examples=40, deadline=None)
def test_any_selection_is_numpys(i, t, part):
    u = trajectories()
    before, source_module._PART_NUMBERS = source_module._PART_NUMBERS, part
    try:
        read = array_source(u).read(i, t)
    finally:
        source_module._PART_NUMBERS = before
    np.testing.assert_array_equal(read, u[np.asarray(i, int)][:, np.asarray(t, int)])


def test_a_missing_channel_or_sample_is_an_axis_of_one(tmp_path):
    u = trajectories((5, 7, 6, 4))
    assert array_source(u, layout="sample time space").shape == (5, 7, 1, 6, 4)
    assert array_source(u[0], layout="time space").shape == (1, 7, 1, 6, 4)
    np.testing.assert_array_equal(array_source(u[0], layout="time space").read()[0, :, 0], u[0])
    assert array_source(u[0, 0], layout="time x").shape == (1, 6, 1, 4)


def test_other_dtypes_and_orders_of_bytes_are_converted(tmp_path):
    u = (100 * trajectories()).astype(np.int16)
    for dtype in (">f8", "<f4", "float16", "int32", ">i2"):
        np.save(tmp_path / "u.npy", np.asfortranarray(u.astype(dtype)))
        np.testing.assert_allclose(open_source(tmp_path / "u.npy").read(), u, rtol=1e-3)


def test_names_are_found_in_order_of_preference(tmp_path):
    u = trajectories()
    np.savez(tmp_path / "u.npz", train=u, test=2 * u, grid=np.arange(3))
    assert source_keys(tmp_path / "u.npz") == ["train", "test", "grid"]
    np.testing.assert_array_equal(open_source(tmp_path / "u.npz").read(), u)
    np.testing.assert_array_equal(open_source(tmp_path / "u.npz", prefer=("test", "u")).read(), 2 * u)
    np.testing.assert_array_equal(open_source(tmp_path / "u.npz", key="test").read(), 2 * u)
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["run/fields/velocity"] = u
    np.testing.assert_array_equal(open_source(tmp_path / "u.h5").read(), u)
    np.testing.assert_array_equal(open_source(tmp_path / "u.h5", key="/run/fields/velocity").read(), u)


def test_sources_join_along_samples(tmp_path):
    u = trajectories()
    joined = JoinedSource([array_source(u[:2]), array_source(u[2:3]), array_source(u[3:])])
    assert joined.shape == SHAPE and joined.id() == array_source(u).id()
    np.testing.assert_array_equal(joined.read([4, 1, 2], slice(2, 5)), u[[4, 1, 2], 2:5])
    with pytest.raises(InputError, match="Fit files of one grid"):
        JoinedSource([array_source(u), array_source(u[..., :3])])


def test_only_what_is_asked_for_is_read(tmp_path):
    """An array of 8 GB that is a hole in a file: reading all of it would take minutes."""
    shape = (100, 200, 1, 320, 320)
    np.lib.format.open_memmap(tmp_path / "u.npy", "w+", np.float32, shape)[3, 4, 0, 5] = 1
    source = open_source(tmp_path / "u.npy")
    assert source.shape == shape and source.nbytes == 8_192_000_000
    assert source.read([3], slice(4, 6)).sum() == 320
    assert source.id() == open_source(tmp_path / "u.npy").id()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "a NaN in sample 3, step 5"),
        (np.inf, "an infinity in sample 3, step 5"),
        (1e300, "1e+300 in sample 3"),
    ],
)
def test_a_value_that_is_no_number_is_found_where_it_is(value, message):
    u = trajectories().astype(np.float64)
    u[3, 5, 1, 2, 2] = value
    source = array_source(u)
    assert source.read([0, 1, 2, 4]).shape == (4, *SHAPE[1:])
    with pytest.raises(InputError) as error:
        source.read(slice(2, None), slice(4, None))
    assert message in str(error.value)


def packed(path, claimed, zeros):
    """An archive whose array says it has this shape and unpacks to that many zero bytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": claimed})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("u.npy", "w") as member:
        member.write(header.getvalue())
        for _ in range(zeros // 10**6):
            member.write(bytes(10**6))
    return path


@pytest.mark.parametrize(
    ("claimed", "message"),
    [((500, 1000, 1, 1000), "is damaged"), ((75, 1000, 1, 1000), "unpacks from 0.3 MB to 0.30 GB")],
)
def test_a_zip_bomb_is_not_unpacked(tmp_path, claimed, message):
    with pytest.raises(InputError) as error:
        open_source(packed(tmp_path / "u.npz", claimed, 300 * 10**6))
    assert message in str(error.value)
