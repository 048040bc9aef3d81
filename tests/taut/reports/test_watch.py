"""The live page of a search: what it shows, who may ask for it, and when it ends."""

import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.client import HTTPConnection
from itertools import product

import pytest

from taut.formulations.space import Candidate
from taut.reports import watch as reports
from taut.reports.watch import Watched, watched
from taut.solver.branch_and_bound.stop import Listener, Progress
from taut.solver.result import CandidateBound, Source, State
from tests.taut.conftest import Run, refused

INF = float("inf")


def bound(pp: int, tp: int, seconds: float, state: State = State.OPEN) -> CandidateBound:
    """A candidate of pp stages and tp tensor ranks on eight devices, with its bound."""
    dp = 8 // pp // tp
    chosen = Candidate(pp, tp, dp, 1, 1, 8, schedule="1f1b", zero=0, sequence_parallel=False)
    return CandidateBound(candidate=chosen, lower_bound=seconds, source=Source.BALANCE, state=state)


def test_open_candidates_are_counted_by_degree() -> None:
    """Of four candidates one does not fit and the plan of 2 s refutes one; two are left, of one stage or of two."""
    each = [bound(1, 1, 1.0), bound(1, 2, 3.0), bound(2, 1, 1.5), bound(2, 2, INF, State.INFEASIBLE)]
    subject = Watched("a model")
    subject.tell(Progress(0.5, 2.0, 1.0, "a candidate", 1, each))
    assert subject.states == {"open": 2, "pruned": 1, "infeasible": 1}
    counted = {key: (subject.left[key], subject.every[key]) for key in product(["pp", "tp"], [1, 2])}
    assert counted == {("pp", 1): (1, 2), ("pp", 2): (1, 2), ("tp", 1): (2, 2), ("tp", 2): (0, 2)}
    shown = subject.shown()
    assert all(words in shown for words in ("pipeline 1", "1 of 2", "50 %", "Plan and lower bound"))


def test_candidates_are_counted_now_and_then_and_moments_kept_always() -> None:
    """A second look within a quarter of a second leaves the counts; the history has both bounds."""
    each, subject = [bound(1, 1, 1.0)], Watched("a model")
    subject.tell(Progress(0.1, 2.0, 1.0, "", 1, each))
    each[0].state = State.SOLVED
    subject.tell(Progress(0.2, 2.0, 1.5, "", 2, each))
    assert subject.states == {"open": 1}
    assert [moment.lower_bound for moment in subject.history.moments] == [1.0, 1.5]
    subject.next_look_s = 0.0
    subject.tell(Progress(0.3, 2.0, 1.5, "", 3, each))
    assert subject.states == {"solved": 1}


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (None, "being built"),
        (Progress(0.0, INF, -INF, "loading"), "No figure yet"),
        (Progress(1.0, INF, 2.0, "<b>relaxing</b>"), "&lt;b&gt;relaxing"),
        (Progress(1.0, 2.0, -INF, "megatron"), "none yet"),
    ],
)
def test_page_stands_without_plan_or_bound(at: Progress | None, words: str) -> None:
    """Before the first moment, with neither figure, and with one alone; words of a search are text."""
    subject = Watched("a model")
    if at is not None:
        subject.tell(at)
    assert words in subject.shown()
    assert subject.page().startswith("<!doctype html>")


def _asked(host: str, port: int, path: str = "/", named: str = "") -> int:
    connection = HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path, headers={"Host": named} if named else {})
        return connection.getresponse().status
    finally:
        connection.close()


def test_server_answers_this_machine_by_its_address_alone() -> None:
    """Other paths are unknown, other hosts refused, and no other address of this machine is listened on."""
    said = list[str]()
    with watched("<i>a</i> on b", None, said.append) as listener:
        port = int(said[0].rsplit(":", 1)[1].strip("/"))
        listener(Progress(1.0, 2.0, 1.0, "a candidate"))
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/").read().decode()
        assert "&lt;i&gt;a&lt;/i&gt; on b" in page and "connect-src 'self'" in page and "plan 2 s" in page
        assert (_asked("127.0.0.1", port, "/now"), _asked("127.0.0.1", port, "/etc/passwd")) == (200, 404)
        assert _asked("127.0.0.1", port, "/", "a.site.example") == 403
        with pytest.raises(OSError):
            _asked("127.0.0.2", port)
    with pytest.raises(OSError):
        _asked("127.0.0.1", port)


def test_page_may_ask_once_more_at_the_end() -> None:
    """A page that asked lately is told that the search has ended; where none asked nothing is waited for."""
    said, seen = list[str](), list[str]()

    def look(address: str) -> None:
        for _ in range(100):
            seen.append(urllib.request.urlopen(f"{address}now").read().decode())
            if "has ended" in seen[-1]:
                return
            time.sleep(0.01)

    with watched("a", None, said.append) as listener:
        listener(Progress(1.0, 2.0, 1.0, "a candidate"))
        page = threading.Thread(target=look, args=[said[0].split()[-1]])
        page.start()
        while not seen:
            time.sleep(0.01)
    page.join()
    assert "Searching: a candidate." in seen[0] and "The search has ended." in seen[-1]
    began = time.monotonic()
    with watched("a", None, said.append):
        pass
    assert time.monotonic() - began < 1.0


@pytest.mark.proof
def test_page_is_fetched_during_a_search(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command prints the address; asked at every moment of the search the page has its candidates and figures."""
    pages, address, tell = list[str](), list[str](), Watched.tell

    def told(self: Watched, at: Progress) -> None:
        self.next_look_s = 0.0
        tell(self, at)
        pages.append(urllib.request.urlopen(f"{address[0]}now").read().decode())

    def serve(title: str, listener: Listener | None, say: Callable[[str], None]) -> AbstractContextManager[Listener]:
        def saying(words: str) -> None:
            address.append(words.split()[-1])
            say(words)

        return watched(title, listener, saying)

    monkeypatch.setattr(Watched, "tell", told)
    monkeypatch.setattr(reports, "watched", serve)
    given = ("plan", "gpt2-345m", "dgx-a100", "--global-batch", 32, "--fix", "tp=1,micro_batch=4")
    outcome = run(*given, "--watch", "--quiet", "--work-limit", 20)
    assert outcome.code == 0 and "step time" in outcome.out
    assert outcome.err == f"watch the search at {address[0]}\n"
    assert any("What is open, by degree" in page and "pipeline 2" in page for page in pages)
    with pytest.raises(OSError):
        urllib.request.urlopen(address[0])


def test_watch_shows_one_search(run: Run) -> None:
    """A choice of the number of nodes has several searches, and is refused."""
    given = ("plan", "gpt2-345m", "dgx-a100", "--global-batch", 32, "--objective", "cost", "--watch")
    refused(run(*given), "--watch")
