"""Every causal type of transformers: read within one in a thousand, or refused by name."""

import warnings
from collections import defaultdict

import pytest

from taut.data.readers.config_families import REFUSED, known_families
from tests.support import transformers_oracle as oracle

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    pytest.importorskip("torch")

REFUSED_TYPES = {family for families in REFUSED.values() for family in families}


def test_every_type_is_known() -> None:
    """A release of transformers with a new type fails here, in one line: add the type to the families or refuse it."""
    new = [family for family in oracle.types() if family not in known_families() and family not in REFUSED_TYPES]
    assert not new, f"new types of transformers: {', '.join(new)}"


@pytest.mark.proof
def test_no_type_is_misread() -> None:
    """Parameters in all and by part are within 0.1 % of the class's, or the file is refused; the table is printed."""
    by_type: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for found in oracle.outcomes():
        by_type[found.case.family][found.kind].append(f"{found.case.change}: {found.words}")
    for kind in ("misread", "refused", "read"):
        names = [family for family, kinds in by_type.items() if kind in kinds]
        print(f"{kind} ({len(names)}): {', '.join(names)}")
    misread = [f"{family}, {words}" for family, kinds in by_type.items() for words in kinds["misread"]]
    assert not misread, "; ".join(misread)
    assert len([family for family, kinds in by_type.items() if "read" in kinds]) >= 154


@pytest.mark.proof
@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_no_field_is_misread(block: int) -> None:
    """With any one field changed, parameters are within 0.1 % of the class's, or the file is refused."""
    found = list(oracle.outcomes(oracle.field_cases, oracle.types()[block::4]))
    misread = [f"{each.case.family}, {each.case.change}: {each.words}" for each in found if each.kind == "misread"]
    assert not misread, "; ".join(misread)
    assert sum(each.kind == "read" for each in found) >= 2500


@pytest.mark.proof
def test_language_models_of_wrappers_are_read() -> None:
    """Types for images: the language model's parameters are the class's, or the file is refused by name."""
    found = dict(oracle.wrappers())
    wrong = {family: words for family, words in found.items() if words != "read" and not words.startswith("refused")}
    # Janus draws images with a head of its own in the same class.
    assert set(wrong) <= {"janus"}
    assert sum(words == "read" for words in found.values()) >= 40


def test_windows_are_those_of_the_class_where_files_name_no_layers() -> None:
    """A file without a list of layers has the windows that its class gives, layer by layer."""
    found = list(oracle.windows())
    assert not [family for family, stated, read in found if stated != read]
    assert len(found) >= 20
