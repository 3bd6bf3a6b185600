"""Reading a store, whole or damaged, and its fields as small pictures."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic_store import KS, fill_store, record

from sgno.errors import InputError
from sgno.io.files import save_arrays, seal
from sgno.lab.report import write_report
from sgno.lab.report.fields import NONFINITE, error_codes, field_codes, pack, unpack
from sgno.lab.report.groups import compare
from sgno.lab.report.provenance import environments
from sgno.lab.report.runs import parse_run, read_store
from sgno.lab.report.tables import all_tables

# On a busy machine an example may take any time; what is tested is not how long.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


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
    assert "is not a plain name" in page and '"samples":[]' in page


def test_missing_or_odd_pictures_leave_the_tables_standing(tmp_path):
    fill_store(tmp_path, KS, pictures=False)
    page = write_report(tmp_path).read_text()
    assert "no spectra" in page and "no sample to show" in page and "0.0300" in page


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


def test_quantised_fields_are_within_half_a_level_and_mark_what_is_not_finite():
    values = np.random.default_rng(0).uniform(-2, 2, (5, 1, 1, 50)).astype(np.float32)
    codes = field_codes(values, 2.0)
    assert np.abs((codes.astype(float) - 127) / 127 * 2 - values).max() <= 2 / 127 / 2 + 1e-6
    values[0, 0, 0, :3] = (np.nan, np.inf, -np.inf)
    assert (field_codes(values, 2.0) == NONFINITE).sum() == 3
    assert (error_codes(values, 2.0) == NONFINITE).sum() == 3
    assert set(field_codes(np.array([-9.0, 0.0, 9.0]), 1.0)) == {0, 127, 254}


def test_the_error_scale_separates_small_errors_and_is_odd():
    errors = np.array([0.0, 0.005, 0.05, 0.5, 2.0])
    codes = error_codes(errors, 1.0).astype(int) - 127
    assert codes[0] == 0 and codes[-1] == 127 and (np.diff(codes) > 10).all()
    np.testing.assert_array_equal(error_codes(-errors, 1.0).astype(int) - 127, -codes)


@patient
@given(st.lists(st.integers(0, 255), min_size=12, max_size=12))
def test_packing_loses_nothing(numbers):
    codes = np.asarray(numbers, np.uint8).reshape(2, 1, 2, 3)
    np.testing.assert_array_equal(unpack(pack(codes), codes.shape), codes)
