"""
A search on a live page: incumbent and bound over time, how many candidates are open, and which degrees they have.

(1) The search reports its state (``taut.solver.branch_and_bound.stop``). Every ``LOOK_S`` seconds, or after ten
    times as long as a look takes, the candidates are counted: a candidate is open while its bound is below the
    incumbent and no plan of it is known to be its best.
(2) The page asks this process for its figures twice a second. They are drawn here, so the page loads nothing else, and
    a machine without a network shows it.
(3) The server listens on 127.0.0.1 alone, and answers a request only if its ``Host`` is this address: a page of another
    site that lets its name lead here is refused.
(4) At the end of the search the page may ask once more, for ``LAST_S`` seconds at most. Then the server closes.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle

from taut.plots.plan import HOP, SHADES
from taut.quoting import html_text as text
from taut.reports.page.figures import BARS, Moments, Points, gap_figure, steps_figure
from taut.reports.page.markup import POLICY, box, document, drawing, label, section
from taut.solver.branch_and_bound.stop import History, Listener, Progress
from taut.solver.result import CandidateBound, State, relative_gap
from taut.words import percent

LOOK_S, LAST_S = 0.25, 2.0
DEGREES = {
    "pp": "pipeline",
    "tp": "tensor",
    "cp": "context",
    "ep": "expert",
    "dp": "data",
    "vpp": "chunks",
    "micro_batch": "micro-batch",
}
"""Degrees by which open candidates are counted, with their names."""
Count = Counter[tuple[str, int]]


@dataclass(slots=True)
class Watched:
    """Where a search stands: its history, and candidates counted by state and degree, (1)."""

    title: str
    history: History = field(default_factory=History)
    last: Progress | None = None
    ended: bool = False
    states: Counter[str] = field(default_factory=Counter)
    left: Count = field(default_factory=Counter)
    every: Count = field(default_factory=Counter)
    points: Points = field(default_factory=list)
    next_look_s: float = 0.0

    def tell(self, at: Progress) -> None:
        """Take in where the search stands."""
        self.history.note(at)
        self.last = at
        began = time.monotonic()
        if at.candidates and began >= self.next_look_s:
            self._count(at)
            self.next_look_s = began + max(LOOK_S, 10 * (time.monotonic() - began))

    def _count(self, at: Progress) -> None:
        """Count the candidates, into counters of their own, as the page may be drawn meanwhile."""
        states, is_open, every = Counter[str](), Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for bound in at.candidates:
            state = _state(bound, at.incumbent)
            states[state] += 1
            degrees = [(name, getattr(bound.candidate, name)) for name in DEGREES]
            every.update(degrees)
            if state == State.OPEN:
                is_open.update(degrees)
        self.states, self.left, self.every = states, is_open, every
        self.points = [*self.points, (at.wall_s, float(states[State.OPEN]))]

    def shown(self) -> str:
        """The figures of the page, and the search in a sentence."""
        at = self.last
        if at is None:
            return '<p class="lead" id="state">The problem is being built.</p>'
        plan, bound = _known(at.incumbent), _known(at.lower_bound)
        gap = None if plan is None or bound is None else relative_gap(plan, bound)
        words = "The search has ended." if self.ended else f"Searching: {at.doing}."
        cards = {
            "seconds of search": f"{at.wall_s:.1f}",
            "plan (s)": "none yet" if plan is None else f"{plan:.5g}",
            "lower bound (s)": "none yet" if bound is None else f"{bound:.5g}",
            "gap": percent(gap),
            **{words: f"{self.states[name]:,}" for name, words in STATES.items() if name in self.states},
        }
        shown = "".join(f"<div><b>{text(value)}</b><span>{text(name)}</span></div>" for name, value in cards.items())
        told = [*self.history.moments, at]
        moments: Moments = [(each.wall_s, _known(each.incumbent), _known(each.lower_bound)) for each in told]
        known = plan is not None or bound is not None
        parts = {
            "Plan and lower bound": gap_figure(moments) if known and at.wall_s > 0 else "<p>No figure yet.</p>",
            **({"Open candidates": self._open_over_time(at.wall_s)} if len(self.points) > 1 else {}),
            **({"What is open, by degree": degrees_figure(self.left, self.every)} if self.every else {}),
        }
        figures = "".join(section(title, content) for title, content in parts.items())
        return f'<p class="lead" id="state">{text(words)}</p><div class="cards">{shown}</div>{figures}'

    def _open_over_time(self, end: float) -> str:
        words = f"open candidates over {end:.3g} s of search"
        return steps_figure({"open": (HOP, self.points)}, max(end, self.points[-1][0]) or 1.0, words)

    def page(self) -> str:
        """The page, which asks for its figures, (2)."""
        policy = f"{POLICY}; connect-src 'self'"
        return document(self.title, f"<h1>{text(self.title)}</h1><main>{self.shown()}</main>", "watch.js", policy)


STATES = {
    State.OPEN.value: "candidates open",
    State.SOLVED.value: "solved",
    State.PRUNED.value: "refuted by the plan",
    State.INFEASIBLE.value: "do not fit",
}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _state(bound: CandidateBound, incumbent: float) -> str:
    """State of a candidate; an open one whose bound the incumbent has reached is pruned at the end, and here."""
    if bound.state is State.OPEN and bound.lower_bound >= incumbent:
        return State.PRUNED.value
    return bound.state.value


def degrees_figure(is_open: Count, every: Count) -> str:
    """A bar for every value of a degree: all candidates that have it, and in colour the open ones."""
    pitch, begin, shapes, y = 19.0, 110.0, list[str](), 0.0
    scale = (BARS - begin - 110.0) / max(every.values())
    for shade, (name, words) in zip(cycle(SHADES), DEGREES.items(), strict=False):
        values = sorted(value for degree, value in every if degree == name)
        if len(values) < 2:
            continue
        for value in values:
            left, count = is_open[name, value], every[name, value]
            hint = f"{words} {value}: {left} of {count} open"
            shapes += [
                label(begin - 8, y + 13, f"{words} {value}", 'text-anchor="end"'),
                box(begin, y, count * scale, 16, "var(--pale)", hint),
                box(begin, y, left * scale, 16, shade, hint),
                label(begin + count * scale + 6, y + 13, f"{left} of {count}"),
            ]
            y += pitch
        y += 8
    return drawing(BARS, y or 1.0, shapes, "open candidates by degree")


@contextmanager
def watched(title: str, listener: Listener | None, say: Callable[[str], None]) -> Iterator[Listener]:
    """A listener that shows a search on a page, and tells another listener too; ``say`` is told the address."""
    subject, asked = Watched(title), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        """Answers with the page, or its figures."""

        def do_GET(self) -> None:
            """Answer, (3)."""
            if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
                self.send_error(403)
            elif self.path == "/":
                self._send(subject.page())
            elif self.path == "/now":
                ended = subject.ended
                self._send(subject.shown())
                if ended:
                    asked.set()
            else:
                self.send_error(404)

        def _send(self, body: str) -> None:
            content = body.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)
            looked.append(time.monotonic())
            del looked[:-1]

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    def tell(at: Progress) -> None:
        subject.tell(at)
        if listener is not None:
            listener(at)

    looked: list[float] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        say(f"watch the search at http://127.0.0.1:{port}/")
        try:
            yield tell
        finally:
            subject.ended = True
            if looked and time.monotonic() - looked[-1] < LAST_S:
                asked.wait(LAST_S)
            server.shutdown()
            thread.join()
