"""Rows of the papers: states by the figures, recorded figures on their pages, and texts held to what is printed."""

import re
from pathlib import Path

import nbformat
import pytest

from taut.papers.published_rows import PAPERS, PaperRow, PaperRows, State, figure

ROOT = Path(__file__).parents[3]
DATA = ROOT / "docs" / "results" / "data"
INCLUDED = re.compile(r'^--8<-- "(?P<path>[^"]+)"$', re.MULTILINE)
DECIMAL = re.compile(r"\d+\.\d+")

each_paper = pytest.mark.parametrize("rows", PAPERS.values(), ids=list(PAPERS))


def page(name: str) -> str:
    """A page of docs with the files that it includes."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    return INCLUDED.sub(lambda found: (DATA / found["path"]).read_text(encoding="utf-8"), text)


def row(published: str, ours: str, reason: str = "") -> PaperRow:
    return PaperRow("table 1", "seconds", published, ours, "plan", "results/searches.md#amp", reason)


def test_state_follows_from_the_figures() -> None:
    """Within 5 % is reproduced, more differs; without ours a reason makes the difference."""
    assert row("2.00 s", "2.09 s").state is State.REPRODUCED
    assert row("2.00 s", "2.11 s", "why").state is State.DIFFERS
    assert row("formula", "--option").state is State.REPRODUCED
    assert row("2.00 s", "", "why").state is State.UNPUBLISHED
    assert row("curve", "1.10x", "why").state is State.UNPUBLISHED
    assert row("2.00 s", "").state is State.MISSING


def test_figures_of_a_run_replace_recorded_ones() -> None:
    """The row says that this run printed it; a dash is no figure."""
    rows = PaperRows((row("2.00 s", "1.00 s", "why"),))
    words = str(rows.with_figures({"table 1: seconds": "2.01 s*"}))
    assert "2.01 s*" in words and "this run" in words and "1 reproduced" in words and "why" not in words
    assert rows.with_figures({"table 1: seconds": "-"}).rows == rows.rows
    assert figure("1,011 s") == 1011


@each_paper
def test_every_row_is_named_once_and_explained(rows: PaperRows) -> None:
    """No key twice; what differs has a reason; pages and anchors exist."""
    assert len({each.key for each in rows.rows}) == len(rows.rows)
    for each in rows.rows:
        assert each.state is not State.DIFFERS or each.reason, each.key
        name, anchor = each.page.split("#")
        heads = re.findall(r"^#+ (.*)$", page(name), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}, each.key


@each_paper
def test_recorded_figures_stand_on_their_pages(rows: PaperRows) -> None:
    """Where both sides have a figure, ours is the one of the page's last renewal."""
    for each in rows.rows:
        if figure(each.published) is not None and DECIMAL.search(each.ours):
            assert each.ours.split(" ")[0] in page(each.page.split("#")[0]), each.key


def test_texts_of_searches_agree_with_their_tables() -> None:
    """Gains of HETHUB's rule and AMP's seconds are those of the tables above the text."""
    text = " ".join(page("results/searches.md").split())
    lines = (DATA / "searches/hethub.txt").read_text(encoding="utf-8").splitlines()
    shares = [found for line in lines if len(found := re.findall(r"([\d.]+)%", line)) >= 4]
    gains = [float(rule) / float(even) - 1 for *_, even, rule, _, _ in shares]
    assert len(gains) == 5
    assert f"{gains[0]:.0%}".replace("%", " %") == f"{gains[1]:.0%}".replace("%", " %")
    said = "by {:.0f} % on 96 and on 768 devices, by {:.1f} % for Nvidia and A, and by {:.0f} % for AMD and B. "
    said += "For AMD and C they gain {:.2f} %"
    assert said.format(*(100 * gains[place] for place in (0, 2, 3, 4))) in text
    for file in ("amp.txt", "amp-profile.txt"):
        printed = (DATA / "searches" / file).read_text(encoding="utf-8")
        line = next(line for line in printed.splitlines() if line.startswith("het_cluster") and line.count(" s") > 4)
        _, megatron, _, amp, *_ = re.findall(r"([\d.]+) s", line)
        assert f"{megatron} s" in text and f"{amp} s" in text


STATED = {
    "results/searches.md#amp": "2.72 0.15 0.3706",  # Section 4.4: the flat ring of 16 replicas; by `taut plan`.
    "results/searches.md#hethub": "10.3 9.8 412.49 507.3 3.9",  # Section 4.4, figure 8; the last by the test above.
    "results/vtrain.md#table-i-plans-of-mt-nlg": "1.1226 1.1228",  # The scalars, in the JSON of the command.
    "results/vtrain.md#table-iii-the-compute-optimal-model": "0.01",  # Rounding of the published sizes.
    "results/vtrain.md#figure-10-the-design-space": "46.2 42.1",  # Plans with any division, by `taut plan`.
    "results/jobs.md#vtrains-second-case-study": "18.4 39.1",  # Sizes of the models.
}
"""Figures of texts that neither the section prints nor a row of the paper has, and where they come from."""
FENCED = re.compile(r"```.*?```", re.DOTALL)
NAMED = re.compile(r"arXiv\s[\d.]+|sections? [\d.]+(?: to [\d.]+)?")
PRINTED = ("results/searches.md", "results/vtrain.md", "results/jobs.md", "results/schedules.md")
"""Pages of the papers whose sections are held to what they print."""


@each_paper
def test_texts_of_sections_agree_with_what_they_print(rows: PaperRows) -> None:
    """Every decimal of a section's sentences is in its tables, a figure of the paper's rows, or ``STATED``."""
    figures = " ".join(each.published + " " + each.ours for each in rows.rows)
    for place in {each.page for each in rows.rows if each.page.startswith(PRINTED)}:
        name, anchor = place.split("#")
        parts = re.split(r"^(?=#+ )", page(name), flags=re.MULTILINE)
        heads = [re.sub(r"[^\w -]", "", part.partition("\n")[0].lstrip("# ").lower()) for part in parts]
        text = parts[[head.replace(" ", "-") for head in heads].index(anchor)]
        tables = "".join(FENCED.findall(text)) + "".join(line for line in text.splitlines() if line.startswith("|"))
        said = "\n".join(line for line in FENCED.sub("", text).splitlines() if not line.startswith("|"))
        decimals = set(DECIMAL.findall(NAMED.sub("", said)))
        assert {each for each in decimals if each not in tables + figures} == set(STATED.get(place, "").split()), place


COUNT = re.compile(r"(?<![\w.,/-])\d[\d,]*(?![\w.,/]*\d|\w)")
SMALL = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
WORDS = {word: str(number) for number, word in enumerate(SMALL, start=2)}
WORDS |= {"twice": "2", "sixteen": "16", "twenty": "20", "hundred": "100", "thousand": "1000"}
WORDS |= {"half": "1/2", "third": "1/3", "quarter": "1/4", "fifth": "1/5", "tenth": "1/10"}
"""What a word of a text stands for in a cell."""
WORD = re.compile(rf"(?<![-\w])(?:{'|'.join(WORDS)})(?!\w)", re.IGNORECASE)
CITED = re.compile(r"et al\., \d{4}|\((?:19|20)\d\d\)|arXiv:?\s?[\d.]+|tables? \d+(?: to \d+)?")
OUTSIDE = {
    "certificate": {"64", "80"},  # GPUs of eight nodes; the share of all bands of taut.
    "jobs": {"128", "1,024", "32"},  # vTrain's section V-B; GPUs of four nodes.
    "own_profile": {"144"},  # 24 layers of 3 passes of 2 ms, as the sentence says.
    "schedules": {"half", "third"},  # The paper's shares of many devices.
}
"""Counts and shares of notebooks that no cell states, and where they come from."""


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))])
def test_texts_of_notebooks_agree_with_their_outputs(name: str) -> None:
    """Every figure of a text, in words too, is printed by a cell, stated in code, or a figure of a paper."""
    cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    known = "".join(output.get("text", "") for cell in code for output in cell.outputs)
    known += "".join(cell.source for cell in code if name not in PAPERS)
    known += " ".join(row.published for rows in PAPERS.values() for row in rows.rows)
    counts, found = set(re.findall(r"\d+(?:/\d+)?", known)), set[str]()
    for cell in cells:
        if cell.cell_type == "markdown":
            assert not [each for each in DECIMAL.findall(cell.source) if each not in known], cell.source
            text = DECIMAL.sub("", CITED.sub("", cell.source))
            found |= {each for each in COUNT.findall(text) if each.replace(",", "") not in counts}
            found |= {each.lower() for each in WORD.findall(text) if WORDS[each.lower()] not in counts}
    assert found == OUTSIDE.get(name, set())
