"""The report in a real browser: it loads without complaint, tables sort, sliders move pictures.

Needs Chromium and its driver, on Debian and Ubuntu `apt-get install chromium chromium-driver`.
`pytest -m "not browser"` leaves these tests out.
"""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import open_browser
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait
from synthetic_store import fill_store, record

from sgno.lab.report import write_report

pytestmark = pytest.mark.browser

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Iterator[webdriver.Chrome]:
    browser = open_browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("store")
    scores = {"sgno": 0.03, "fno": 0.6, "dil": 0.2, "linear": 0.7, "sgno-residual": 1.5, "conv": None}
    records = [record("ks1d", m, seed, gmean100=g) for m, g in scores.items() for seed in range(2)]
    records += [record(task, m, gmean100=g) for task in ("kolm2d", "diagdiff3d") for m, g in scores.items()]
    records += [record("adv1d", "fno", gmean100=0.001), record(HOSTILE, HOSTILE, config={"kind": HOSTILE})]
    return write_report(fill_store(root, records), root / "report.html")


@pytest.fixture
def opened(driver, page) -> webdriver.Chrome:
    driver.get(page.as_uri())
    _wait(driver, "return !!document.getElementById('viewer').dataset.step")
    return driver


def _wait(driver, script: str) -> None:
    WebDriverWait(driver, 300).until(lambda d: d.execute_script(script))


def _pixels(driver, canvas: str) -> list[int]:
    script = (
        "const c = document.getElementById(arguments[0]);return "
        "Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.filter((_, i) => i % "
        "97 < 3))"
    )
    return driver.execute_script(script, canvas)


def _slide(driver, slider: str, value: int) -> None:
    script = (
        "const s = document.getElementById(arguments[0]);"
        "s.value = arguments[1]; s.dispatchEvent(new Event('input'))"
    )
    driver.execute_script(script, slider, value)


def _column(driver, table: str, index: int) -> list[str]:
    script = (
        "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]"
        ".map(r => r.cells[arguments[1]].querySelector('.v').textContent)"
    )
    return driver.execute_script(script, table, index)


def test_the_page_loads_without_a_word_on_the_console_and_draws_its_charts(opened):
    assert [entry for entry in opened.get_log("browser") if entry["level"] != "INFO"] == []
    for plot in ("growth", "spectra", "ratios", "ablation", "cost"):
        found = opened.find_elements(By.CSS_SELECTOR, f"#{plot}-plot :is(.line, .bar, .point)")
        assert found, f"{plot} was not drawn"
    assert len(opened.find_elements(By.CSS_SELECTOR, "#growth-plot .line")) >= 4


def test_labels_of_points_do_not_cover_each_other(opened):
    boxes = opened.execute_script(
        "return [...document.querySelectorAll('#cost-plot svg > text[fill^=\"#\"]')].map(t => t.getBBox())"
        ".map(b => [b.x, b.y, b.x + b.width, b.y + b.height])"
    )
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] + 3 or b[3] <= a[1] + 3, (a, b)


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_makes_a_phone_scroll_sideways(opened, width):
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_curve_says_its_value_under_the_pointer(opened):
    opened.execute_script(
        "const lines = [...document.querySelectorAll('#growth-plot .line')];"
        # A model without a finite number has an empty line.
        "const line = lines.find(l => l.getAttribute('d')), svg = line.ownerSVGElement;"
        "const p = line.getPointAtLength(40), area = svg.getBoundingClientRect();"
        "svg.dispatchEvent(new PointerEvent('pointermove',"
        "{clientX: area.left + p.x, clientY: area.top + p.y, bubbles: true}))"
    )
    assert ", step " in opened.find_element(By.CSS_SELECTOR, "#growth-plot .tip").text


def test_nothing_a_store_contains_runs_as_script(opened):
    assert opened.execute_script("return window.hacked === undefined")
    # The policy stops even a script that is put into the page later.
    opened.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 3'; "
        "document.body.append(s)"
    )
    assert opened.execute_script("return window.hacked === undefined")
    assert HOSTILE in opened.find_element(By.CSS_SELECTOR, "#table-main tbody").get_attribute("textContent")
    opened.get_log("browser")


def test_a_table_sorts_up_down_and_back_on_click_and_on_the_keyboard(opened):
    heads = [h.text.strip() for h in opened.find_elements(By.CSS_SELECTOR, "#table-main thead th")]
    fno = heads.index("FNO")
    button = opened.find_elements(By.CSS_SELECTOR, "#table-main thead button")[fno]
    before = _column(opened, "table-main", 0)
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    up = _column(opened, "table-main", fno)
    known = [text for text in up if text != "not run"]
    assert known == sorted(known, key=float) and up[: len(known)] == known
    assert opened.find_elements(By.CSS_SELECTOR, "#table-main th[aria-sort='ascending']")
    button.send_keys(Keys.ENTER)
    down = _column(opened, "table-main", fno)
    assert [text for text in down if text != "not run"] == known[::-1] and down[-1] == "not run"
    button.send_keys(Keys.SPACE)
    assert _column(opened, "table-main", 0) == before


def test_nonfinite_sorts_above_every_number_and_below_what_was_not_run(opened):
    heads = [h.text.strip() for h in opened.find_elements(By.CSS_SELECTOR, "#table-main thead th")]
    conv = heads.index("Conv")
    opened.find_elements(By.CSS_SELECTOR, "#table-main thead button")[conv].send_keys(Keys.ENTER)
    assert _column(opened, "table-main", conv)[0] == "non-finite"


@pytest.mark.parametrize(("row", "dims"), [("ks1d", 1), ("kolm2d", 2), ("diagdiff3d", 3)])
def test_the_time_slider_moves_the_picture(opened, row, dims):
    chooser = Select(opened.find_element(By.ID, "field-row"))
    chooser.select_by_visible_text(next(o.text for o in chooser.options if o.text.startswith(row)))
    frames = []
    for value in (0, 7):
        _slide(opened, "time", value)
        step = value * (1 if dims == 1 else 5)
        _wait(opened, f"return document.getElementById('viewer').dataset.step === '{step}'")
        frames.append({name: _pixels(opened, f"canvas-{name}") for name in ("truth", "a", "b", "ea")})
        assert opened.find_element(By.ID, "time-text").text == str(step)
    for name in ("truth", "a", "ea"):
        assert len(set(frames[1][name])) > 10, f"{name} is blank"
        assert frames[0][name] != frames[1][name], f"{name} did not move"


def test_play_runs_the_slider_and_stops_on_the_second_click(opened):
    _slide(opened, "time", 0)
    button = opened.find_element(By.ID, "play")
    button.send_keys(Keys.ENTER)
    _wait(opened, "return Number(document.getElementById('time').value) >= 3")
    assert button.get_attribute("aria-pressed") == "true"
    button.send_keys(Keys.ENTER)
    assert button.get_attribute("aria-pressed") == "false"


def test_choosing_another_model_changes_its_picture_and_name(opened):
    chooser = Select(opened.find_element(By.ID, "field-b"))
    chooser.select_by_value("linear")
    _wait(opened, "return document.getElementById('name-b').textContent === 'Linear'")


def test_variants_are_drawn_only_when_asked_for(opened):
    chips = {
        chip.text: chip.find_element(By.TAG_NAME, "input").is_selected()
        for chip in opened.find_elements(By.CSS_SELECTOR, "#chips label")
    }
    assert chips["SGNO"] and chips["FNO"] and not chips["SGNO, residual update"]


def test_a_model_can_be_switched_off_and_the_spectrum_moves_in_time(opened):
    lines = "return document.querySelectorAll('#growth-plot .line').length"
    before = opened.execute_script(lines)
    opened.execute_script("document.querySelector('#chips input').click()")
    _wait(opened, f"{lines} < {before}")
    path = "return document.querySelectorAll('#spectra-plot .line')[1].getAttribute('d')"
    first = opened.execute_script(path)
    _slide(opened, "spectra-time", 15)
    _wait(opened, f"{path} !== {first!r}")


def test_dark_and_light_and_print(opened):
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = opened.execute_script(ground)
    opened.find_element(By.ID, "theme").send_keys(Keys.ENTER)
    assert opened.execute_script(ground) != light
    pdf = base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF") and len(pdf) > 50_000
    assert [entry for entry in opened.get_log("browser") if entry["level"] == "SEVERE"] == []
