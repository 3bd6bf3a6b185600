"""Reading a store, whole or damaged, and its fields as small pictures."""

import base64
import io
import json
import re
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from synthetic_store import KS, fill_store, record

from sgno.errors import InputError
from sgno.io.files import Arrays, save_arrays, seal
from sgno.lab.compact import NONFINITE, decode, encode, error_codes, errors_of
from sgno.lab.report import render_tables, write_report
from sgno.lab.report.fields import Frames, load_prediction, prediction_picture, truth_picture
from sgno.lab.report.groups import compare
from sgno.lab.report.provenance import environments
from sgno.lab.report.runs import parse_run, read_store
from sgno.lab.report.tables import all_tables
from sgno.lab.store import Store
from sgno.lab.thin import thin

# On a busy machine an example may take any time; what is tested is not how long.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _data(page: str) -> dict:
    """What the page's script gets."""
    (text,) = re.findall(r'id="data">([^<]*)<', page)
    return json.loads(zlib.decompress(base64.b64decode(text)))


# Reading a store


def test_a_damaged_record_is_reported_and_never_counted(tmp_path):
    fill_store(tmp_path, KS)
    lacking = record()
    del lacking["gmean100"]
    for name, text in {
        "a": "{", "b": json.dumps(seal(lacking)), "c": "[]",
        "d": json.dumps(seal({**record(), "gmean100": "0.1"})),
        "e": json.dumps(record()).replace("0.001", "NaN"), "f": '{"a":' * 50_000,
    }.items():  # fmt: skip
        (tmp_path / "jobs" / name).mkdir()
        (tmp_path / "jobs" / name / "record.json").write_text(text)
    contents = read_store(tmp_path)
    assert len(contents.runs) == len(KS) and len(contents.unreadable) == 6
    assert "'gmean100'" in "".join(contents.unreadable)
    assert "jobs/a/record.json" in write_report(tmp_path, tmp_path / "r.html").read_text()


def test_a_folder_under_way_is_not_a_result(tmp_path):
    fill_store(tmp_path, KS[:1], pictures=False)
    (tmp_path / "jobs" / ".x.part").mkdir()
    (tmp_path / "jobs" / ".x.part" / "record.json").write_text("{")
    assert len(read_store(tmp_path).runs) == 1 and not read_store(tmp_path).unreadable


def test_no_store_and_an_empty_one_say_what_to_do(tmp_path):
    with pytest.raises(InputError, match="There is no folder"):
        read_store(tmp_path / "missing")
    with pytest.raises(InputError, match="holds no finished job"):
        read_store(tmp_path)


def test_a_data_id_cannot_lead_outside_the_store(tmp_path):
    root = tmp_path / "store"
    content = {**record(), "data": "../../outside"}
    fill_store(root, [content])
    save_arrays(tmp_path.parent / "outside.safetensors", {}, {"states": np.zeros((201, 1, 80), np.float16)})
    page = write_report(root, tmp_path / "r.html").read_text()
    assert "is not a plain name" in page and _data(page)["samples"] == []


def test_missing_or_odd_pictures_leave_the_tables_standing(tmp_path):
    fill_store(tmp_path, KS, pictures=False)
    page = write_report(tmp_path).read_text()
    assert "no spectra" in page and "no film" in page and "0.0300" in page


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just(10**400)
    | st.just(-1.0),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def _paths(content, path=()):
    for key, value in content.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from _paths(value, (*path, key))


@settings(patient, max_examples=300)
@given(st.sampled_from(list(_paths(record(transfer={"64": 0.1})))), st.none() | JSON, st.booleans())
def test_any_record_either_becomes_tables_or_is_refused_with_a_reason(path, value, gone):
    content = json.loads(json.dumps(record(transfer={"64": 0.1})))
    *folders, last = path
    inner = content
    for folder in folders:
        inner = inner[folder]
    if gone:
        del inner[last]
    else:
        inner[last] = value
    try:
        run = parse_run(content, "a")
    except InputError:
        return
    for found in all_tables(compare([run])):
        assert all(isinstance(cell.text, str) for row in found.rows for cell in row)
    environments([run])


# Fields


def test_the_error_scale_separates_small_errors_and_is_odd():
    errors = np.array([0.0, 0.001, 0.01, 0.1, 1.0, 2.0])
    codes = error_codes(errors, 1.0).astype(int) - 127
    assert codes[0] == 0 and codes[-1] == 127 and (np.diff(codes) > 10).all()
    np.testing.assert_array_equal(error_codes(-errors, 1.0).astype(int) - 127, -codes)
    np.testing.assert_allclose(errors_of(error_codes(errors, 1.0), 1.0), errors, rtol=0.05)
    assert (error_codes(np.array([np.nan, np.inf]), 1.0) == NONFINITE).all()


def _picture(text: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("L"), np.float32)


def test_a_film_shows_fields_where_they_are_far_off_errors_where_they_are_close_and_where_numbers_end():
    x = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    truth = np.sin(x + 0.1 * np.arange(30)[:, None])[:, None, None].astype(np.float32)
    prediction = truth * np.where(np.arange(30) < 15, 1.005, 0.4)[:, None, None, None].astype(np.float32)
    prediction[25:] = np.nan
    frames = Frames(truth, 1)
    made = prediction_picture(frames, Frames(prediction, 1))
    assert made["kinds"] == "e" * 15 + "f" * 10 and made["end"] == 25
    codes, true = _picture(made["image"]), _picture(truth_picture(frames))
    assert codes.shape == (25, 64) and true.shape == (30, 64)
    assert np.abs((true - 127) / 127 - truth[:, 0, 0]).max() < 0.1
    assert np.abs((codes[15:] - 127) / 127 - prediction[15:25, 0, 0]).max() < 0.15
    size = np.abs(errors_of(codes[:15].astype(np.uint8), 1.0)).max()
    assert 0.003 < size < 0.009


# Thinning


@patient
@given(st.lists(st.floats(width=32) | st.just(0.0), min_size=6, max_size=6))
def test_packed_numbers_come_back_within_their_steps(numbers):
    values = np.asarray(numbers, np.float32).reshape(3, 2)
    kinds = {"decades": np.abs(values), "field": values, "unit": np.tanh(np.nan_to_num(values))}
    back = decode(Arrays(*encode(kinds, {name: name for name in kinds}))).arrays
    finite = np.isfinite(values)
    assert (np.isfinite(back["decades"]) == finite).all() and (np.isfinite(back["field"]) == finite).all()
    # Numbers below 1e-40 are zero.
    np.testing.assert_allclose(back["decades"][finite], np.abs(values)[finite], rtol=0.002, atol=2e-41)
    largest = np.abs(values[finite]).max(initial=0.0)
    np.testing.assert_allclose(back["field"][finite], values[finite], rtol=0, atol=largest / 3999 + 1e-45)
    np.testing.assert_allclose(back["unit"], kinds["unit"], atol=5.1e-5)


def test_a_thinned_store_says_the_same_and_keeps_one_sample_of_each_setting(tmp_path):
    fill_store(tmp_path, KS)
    store, tables = Store(tmp_path), render_tables(tmp_path, "csv")
    run = compare(read_store(tmp_path).runs).groups[0].first
    before, spectrum = load_prediction(store, run).values, store.curves(run.id).arrays["spectrum"]
    thinned = thin(tmp_path)
    assert thinned.after < thinned.before and render_tables(tmp_path, "csv") == tables
    assert len(list(tmp_path.glob("jobs/*/sample.*"))) == len(compare(read_store(tmp_path).runs).groups) == 5
    np.testing.assert_allclose(load_prediction(store, run).values, before, atol=1e-3)
    np.testing.assert_allclose(store.curves(run.id).arrays["spectrum"], spectrum, rtol=0.002)
    sizes = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert thin(tmp_path) == (thinned.after, thinned.after)
    assert sizes == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
