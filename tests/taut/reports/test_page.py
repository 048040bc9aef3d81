"""The page of a plan: it opens without a network, says what the plan says, and takes no name for markup."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taut
from taut import Plan
from taut.data.cluster import ClusterSpec, MatrixSpec
from taut.data.load import load_cluster
from taut.errors import DataError
from taut.reports.page.figures import moments_of
from taut.reports.page.markup import script_json
from taut.reports.page.page import plan_page
from tests.support.plans import made_plan
from tests.taut.conftest import Run, refused

pytestmark = pytest.mark.proof

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\"&"
NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = {"meta", "br", "input"}


class Page(HTMLParser):
    """Tags of a page with their attributes, each closed in order, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Close the last tag."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep scripts."""
        if self._open and self._open[-1] == "script":
            self.scripts.append(data)


@pytest.fixture(scope="module")
def found() -> Plan:
    """GPT-2 345M on four nodes of four T4, whose links were measured."""
    rows = np.random.default_rng(3).uniform(5.0, 50.0, (4, 4)).tolist()
    matrix = MatrixSpec(unit="Gb/s", rows=rows)
    cluster: ClusterSpec = load_cluster("g4dn.12xlarge:4").model_copy(update={"bandwidth_matrix": matrix})
    return taut.plan("gpt2-345m", cluster, global_batch=32, fix={"pp": 4, "tp": 1}, work_limit=20)


def renamed(plan: Plan, name: str) -> Plan:
    """The plan with another name for everything that has one."""
    document = json.loads(json.dumps(plan.document))
    for section in document["inputs"].values():
        section["name"] = name
        section["spec"]["name"] = name
    document["certificate"]["candidates"][0]["source"] = name
    document["certificate"]["candidates"][0]["strategy"]["schedule"] = name
    for node in document["inputs"]["cluster"]["spec"]["nodes"]:
        node["device"]["name"] = name
    return Plan(document, name)


def test_page_refers_to_nothing_else(found: Plan) -> None:
    """No tag names another document, no style loads one, and the page's policy would not let it."""
    text = plan_page(found)
    page = Page(text)
    assert [attrs for _, attrs in page.tags if {"src", "href", "srcset", "action"} & attrs.keys()] == []
    addresses = set(re.findall(r"https?://[^\"' )]+", text)) - {"http://www.w3.org/2000/svg"}
    sources = json.dumps(found.document)
    assert {each for each in addresses if each not in sources} == set()
    assert "@import" not in text
    policy = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"]


def test_page_has_every_figure_and_candidate(found: Plan) -> None:
    """Five drawings, and the candidates with state and bound as the certificate has them."""
    page = Page(plan_page(found))
    assert sum(tag == "svg" for tag, _ in page.tags) == 5
    values = json.loads(page.scripts[0])
    assert [row[1:] for row in values["rows"]] == [
        [entry.state, entry.lower_bound_s, entry.source] for entry in found.candidates
    ]
    assert values["own"].startswith(f"pp=4 tp=1 dp={found.strategy.dp} ")
    assert sum(row[0] == values["own"] for row in values["rows"]) == 1


def words_on_a_telephone(page: str, window: float = 390.0) -> list[float]:
    """Pixels of every drawing's words in a window, by the style of the page: 12 units of the drawing each."""
    style = (files("taut.reports.page") / "page.css").read_text(encoding="utf-8")
    assert "svg text { font: 12px " in style and "padding: 24px 20px" in style
    natural = "@media (max-width: 640px) { .wide svg { width: var(--width); } }" in style
    sizes = list[float]()
    for before, width, content in re.findall(
        r'(<div class="wide">|.)<svg [^>]*viewBox="0 0 (\S+) [^>]*>(.*?)</svg>', page
    ):
        shown = float(width) if natural and before != ">" and f"--width:{width}px" in page else window - 40
        sizes += [12 * min(shown / float(width), 1.0)] * ("<text" in content)
    return sizes


def test_words_of_drawings_can_be_read_on_a_telephone(found: Plan) -> None:
    """In a window of 390 pixels words have their 12: a drawing with words is moved, not shrunk."""
    sizes = words_on_a_telephone(plan_page(found))
    assert len(sizes) == 4 and min(sizes) == 12
    assert f"lower bound {found.lower_bound_s:.4g} s</span>" in plan_page(found)


def test_hostile_names_stay_text(found: Plan) -> None:
    """A name that would close the script or open a tag adds no tag and no script."""
    usual, hostile = (Page(plan_page(plan)) for plan in (found, renamed(found, HOSTILE)))
    assert len(hostile.scripts) == len(usual.scripts) == 2
    assert not {"img"} & {tag for tag, _ in hostile.tags}
    assert not any(name.startswith("on") for _, attrs in hostile.tags for name in attrs)
    assert json.loads(hostile.scripts[0])["rows"][0][3] == HOSTILE


def test_json_between_script_tags_reads_back() -> None:
    """Signs that a parser of HTML would see are hidden, and a parser of JSON sees them again."""
    values = [HOSTILE, "<!--", "\u2028]]>", 1.5, None]
    hidden = script_json(values)
    assert not set(hidden) & set("<>&\u2028")
    assert json.loads(hidden) == values


def test_history_never_lowers_the_bound(found: Plan) -> None:
    """Over the search the bound rises, the plan's seconds fall, and both end at the certificate's figures."""
    history = found.document["provenance"]["history"]
    assert [moment["work"] for moment in history] == sorted(moment["work"] for moment in history)
    moments = moments_of(found)
    bounds = [bound for _, _, bound in moments if bound is not None]
    plans = [seconds for _, seconds, _ in moments if seconds is not None]
    assert bounds == sorted(bounds)
    assert plans == sorted(plans, reverse=True)
    assert moments[-1][1:] == (found.step_time_s, found.lower_bound_s)


@pytest.mark.parametrize(
    "provenance", [{}, {"history": "no"}, {"history": [1], "wall_s": 1}, {"history": [{"wall_s": "x"}], "wall_s": 2}]
)
def test_files_without_a_history_draw_none(provenance: dict[str, Any]) -> None:
    """Older files, and histories of another form, leave the figure out and nothing else."""
    plan = made_plan(provenance=provenance)
    assert moments_of(plan) == []


def test_large_clusters_are_drawn_by_neighbours() -> None:
    """300 nodes become at most 96 rows, and the page stays small."""
    found = taut.plan("gpt2-345m", "dgx-a100:300", global_batch=2400, fix={"pp": 3, "tp": 8}, work_limit=1)
    text = plan_page(found)
    assert "4 neighbours are drawn as one" in text
    assert len(text) < 1_500_000


def test_command_writes_the_page(found: Plan, tmp_path: Path, run: Run) -> None:
    """``report`` writes one file; a plan that contradicts itself or a wrong folder is one line, without a file."""
    path, out = tmp_path / "plan.json", tmp_path / "report.html"
    found.write(path)
    refused(run("report", path, "--out", tmp_path / "none" / "r.html"), "there is no folder")
    broken = json.loads(path.read_text())
    del broken["predicted"]["breakdown_s"]["compute"]
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    refused(run("report", tmp_path / "broken.json", "--out", out), "expected a plan written by taut")
    assert not out.exists()
    outcome = run("report", path, "--out", out)
    assert (outcome.code, outcome.err) == (0, "")
    assert out.read_text().startswith("<!doctype html>")


def test_page_names_what_is_missing() -> None:
    """A plan without a part of its time is refused by name."""
    plan = made_plan(predicted={"breakdown_s": {}})
    with pytest.raises(DataError, match="compute"):
        plan_page(plan)


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_script_sorts_and_filters() -> None:
    """Numbers sort by value, rows without one come last both ways, and words and states filter."""
    script = (files("taut.reports.page") / "page.js").read_text(encoding="utf-8")
    rows = [["pp=2 tp=1", "pruned", 10.0, "x"], ["pp=4", "infeasible", None, "memory"], ["pp=2", "open", 9.5, "x"]]
    calls = "[sorted(rows,2,false),sorted(rows,2,true),filtered(rows,'PP=2 tp',''),filtered(rows,'','open')]"
    code = f"{script};const rows={json.dumps(rows)};console.log(JSON.stringify({calls}))"
    done = subprocess.run([str(NODE), "-e", code], capture_output=True, text=True, check=True)
    up, down, words, state = json.loads(done.stdout)
    assert [row[2] for row in up] == [9.5, 10.0, None]
    assert [row[2] for row in down] == [10.0, 9.5, None]
    assert [row[0] for row in words] == ["pp=2 tp=1"]
    assert [row[1] for row in state] == ["open"]


CLICKS = """<script>
const heads = [...document.querySelectorAll("#table th")], seen = [];
const bounds = () => [...document.querySelectorAll("#rows tr")].map((row) => row.cells[2].textContent);
seen.push(bounds()); heads[2].querySelector("button").click(); seen.push(bounds());
const state = document.getElementById("state"); state.value = "infeasible";
state.dispatchEvent(new Event("change")); seen.push(bounds());
const rows = document.querySelectorAll("#rows tr").length;
document.title = JSON.stringify([seen, rows, document.querySelectorAll("svg").length,
  document.documentElement.scrollWidth <= window.innerWidth]);
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_browser_shows_sorts_and_filters(found: Plan, tmp_path: Path) -> None:
    """Headless Chromium runs the page of a plan with a hostile name: no console errors, figures, the table sorts."""
    path = tmp_path / "page.html"
    path.write_text(plan_page(renamed(found, HOSTILE)).replace("</body>", CLICKS), encoding="utf-8")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    home = f"--user-data-dir={tmp_path / 'home'}"
    done = subprocess.run(
        [str(CHROMIUM), *flags, home, path.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    assert "CONSOLE" not in done.stderr
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None
    (up, down, infeasible), rows, drawings, fits = json.loads(title[1].replace("&amp;", "&"))
    numbers = [float(value) for value in up if value]
    assert len(numbers) > 2
    assert numbers == sorted(numbers)
    top = [float(value) for value in down if value]
    assert top == sorted(top, reverse=True)
    assert rows == len(infeasible)
    assert set(infeasible) <= {""}
    assert drawings >= 4
    assert fits
