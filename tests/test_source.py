"""One array reads the same in every format and axis order, in part or whole."""

import io
import json
import time
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


def test_numbers_in_other_files_are_not_read(tmp_path):
    """HDF5 can name other files in four ways."""
    secret, path = tmp_path / "secret.h5", tmp_path / "u.h5"
    u = trajectories()
    with h5py.File(secret, "w") as file:
        file["u"] = u
    u.tofile(tmp_path / "secret.bin")
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout(u.shape, u.dtype)
        layout[...] = h5py.VirtualSource(str(secret), "u", u.shape)
        file.create_virtual_dataset("virtual", layout)
        raw = [(str(tmp_path / "secret.bin"), 0, u.nbytes)]
        file.create_dataset("external", u.shape, u.dtype, external=raw)
        file["link"] = h5py.ExternalLink(str(secret), "/u")
        file["soft"] = h5py.SoftLink("/virtual")
    assert source_keys(path) == ["external", "virtual"]
    for name in ("virtual", "external"):
        with pytest.raises(InputError, match="keeps its numbers in other files"):
            open_source(path, key=name)
    for name in ("link", "soft"):
        with pytest.raises(InputError, match="Unknown array"):
            open_source(path, key=name)


def zarr_folder(path, version):
    zarr.create_array(str(path), data=trajectories(), zarr_format=version)
    return path / (".zarray" if version == 2 else "zarr.json")


@pytest.mark.parametrize(
    ("version", "change"),
    [
        (2, {"filters": [{"id": "pickle"}]}),
        (2, {"compressor": {"id": "pickle"}}),
        (2, {"filters": [{"id": "json2"}]}),
        (2, {"dtype": "|O"}),
        (3, {"codecs": [{"name": "numcodecs.pickle"}]}),
        (3, {"codecs": [{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [1, 1, 1, 1, 1], "codecs": [{"name": "numcodecs.pickle"}], "index_codecs": []}}]}),
        (3, {"storage_transformers": [{"name": "x"}]}),
        (3, {"data_type": "string"}),
    ],
)  # fmt: skip
def test_what_could_run_code_in_a_zarr_folder_is_refused_before_zarr_sees_it(
    tmp_path, monkeypatch, version, change
):
    mark = zarr_folder(tmp_path / "u.zarr", version)
    mark.write_text(json.dumps({**json.loads(mark.read_text()), **change}))
    opened = []
    monkeypatch.setattr(zarr, "open_array", lambda *_, **__: opened.append("open_array"))
    monkeypatch.setattr(zarr, "open", lambda *_, **__: opened.append("open"))
    with pytest.raises(InputError, match=r"codec '|holds '|storage transformers"):
        open_source(tmp_path / "u.zarr")
    assert not opened


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_folder_does_not_lead_out_of_itself(tmp_path, version):
    root = tmp_path / "u.zarr"
    zarr_folder(root, version)
    np.testing.assert_array_equal(open_source(root).read(), trajectories())
    (chunk,) = [path for path in root.rglob("*") if path.is_file() and path.name[0] not in ".z"]
    chunk.rename(tmp_path / "elsewhere")
    chunk.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="would lead out of the zarr folder"):
        open_source(root)
    group = tmp_path / "group.zarr"
    zarr.open_group(str(group), mode="w")
    (group / "u").symlink_to(root)
    with pytest.raises(InputError, match="holds no array"):
        open_source(group)


def test_shards_and_groups_read(tmp_path):
    u = trajectories()
    group = zarr.open_group(str(tmp_path / "g.zarr"), mode="w")
    group.create_array("run/u", data=u, chunks=(1, *u.shape[1:]), shards=u.shape)
    assert source_keys(tmp_path / "g.zarr") == ["run/u"]
    np.testing.assert_array_equal(open_source(tmp_path / "g.zarr").read(), u)


@pytest.mark.parametrize("suffix", [".h5", ".zarr"])
def test_an_array_of_holes_is_refused(tmp_path, suffix):
    """A thousand million samples in a file of a few kilobytes."""
    path, shape, chunks = tmp_path / f"u{suffix}", (10**9, 3, 1, 8), (1, 3, 1, 8)
    if suffix == ".h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("u", shape, "f4", chunks=chunks)
    else:
        zarr.create_array(str(path), shape=shape, chunks=chunks, dtype="f4")
    with pytest.raises(InputError, match=r"unpacks from 0\.0 MB to 96\.00 GB"):
        open_source(path)


def test_one_sample_of_very_many_is_read_at_once(tmp_path):
    np.lib.format.open_memmap(tmp_path / "u.npy", "w+", np.float32, (10**8, 2, 1, 2))
    source = open_source(tmp_path / "u.npy")
    before = time.process_time()
    assert source.read(slice(0, 1)).shape == (1, 2, 1, 2)
    assert time.process_time() - before < 0.1
