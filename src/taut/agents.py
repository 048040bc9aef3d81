"""
A server of the Model Context Protocol: plans, comparisons, checks and predictions as tools of an agent.

Answers are small. A figure of a plan stands with its lower bound, its gap and the plan file that holds the certificate,
so that whoever reads the answer can check it (``taut verify FILE``). Plan files are written to one folder, and no tool
reads or writes a file outside of it. A name without such a file is one of the catalog.

What taut refuses comes back as its one line: field, value, and what was expected.
"""

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from taut.data.spec import digest
from taut.errors import DataError, TautError

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from taut.planning.plan import Plan

Answer = dict[str, Any]
Tool = TypeVar("Tool", bound=Callable[..., Any])
SECONDS = 60.0
"""Default limit of a search: an agent's client waits for an answer no longer than some minutes."""
ROWS = 100
"""Most rows of a prediction, whose answer an agent reads whole."""
INSTRUCTIONS = (
    "taut plans the training of large models on GPU clusters and proves how good a plan is. Call `catalog` for names "
    "of models and clusters, `plan` for the best plan, `compare` for what runs today, `explain` for a plan in words, "
    "`verify` before you rely on a plan file. Quote step time, lower bound and gap together, with the plan file. A gap "
    "is a claim about prices: quote `band_s` where it is given, and what lies `beyond` all runs."
)
FILES = re.compile(r"[/\\]|\.(ya?ml|json|csv|toml|py|sh)$")


def server(folder: Path) -> "MCPServer[Any]":
    """The server, whose files are in a folder; ``DataError`` without the extra ``mcp``."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise DataError("taut mcp: the package mcp is missing, expected pip install 'taut[mcp]'") from None
    found: MCPServer[Any] = MCPServer("taut", instructions=INSTRUCTIONS)

    def answered(tool: Tool) -> Tool:
        """The tool with refusals as the protocol's errors."""

        @wraps(tool)
        def call(*given: Any, **named: Any) -> Any:
            try:
                return tool(*given, **named)
            except TautError as error:
                raise ToolError(str(error)) from None

        return cast("Tool", call)

    tools = Tools(folder)
    for each in (tools.catalog, tools.plan, tools.compare, tools.predict, tools.explain, tools.verify):
        found.add_tool(answered(each), name=each.__name__, description=(each.__doc__ or "").strip())
    return found


class Tools:
    """The tools over one folder of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def catalog(self) -> dict[str, list[str]]:
        """List the names of built-in models, clusters (NAME:NODES repeats a node) and stacks (frameworks)."""
        from taut.data.catalog.devices import catalog_section

        return {section: sorted(catalog_section(section)) for section in ("models", "clusters", "stacks")}

    def plan(self, model: str, cluster: str, global_batch: int, options: Answer | None = None) -> Answer:
        """
        Find the fastest plan of a training step, with a lower bound that no plan of the space beats.

        model: catalog name or file (YAML, config.json); cluster: catalog name such as dgx-h100:8, or YAML file;
        global_batch: sequences a step; options: of `taut plan`, such as {"seq": 4096, "stack": "torchtitan",
        "precision": "fp8", "fix": {"tp": 4}, "gap": 0.001, "time_limit": 60}.
        """
        import taut

        given = {"time_limit": SECONDS, **self._checked(options)}
        names = self._name("model", model), self._name("cluster", cluster)
        return self._answer(taut.plan(*names, global_batch=global_batch, plainer=True, **given))

    def compare(
        self, model: str, cluster: str, global_batch: int, current: Answer, options: Answer | None = None
    ) -> Answer:
        """
        Set what runs today beside the proven best, with the single changes that gain most.

        current: degrees and choices, such as {"tp": 8, "pp": 4, "dp": 2, "micro_batch": 1, "recompute": "full"}; the
        rest as of `plan`. `distance` is how far the current step is above the lower bound of all plans.
        """
        import taut

        given = {"time_limit": SECONDS, **self._checked(options)}
        names = self._name("model", model), self._name("cluster", cluster)
        found = taut.compare(*names, global_batch=global_batch, current=current, **given)
        values = found.as_dict()
        running = {**values["current"], "memory_bytes": max(values["current"]["memory_bytes"])}
        changes = [{k: each[k] for k in ("what", "from", "to", "gain", "fits")} for each in values["changes"][:5]]
        return {
            "current": running,
            "distance": values["distance"],
            "changes": changes,
            "best": self._answer(found.best),
        }

    def predict(self, rows: list[Answer]) -> list[Answer]:
        """
        Predict step time (with its band), memory and fit of configurations, one a row.

        Columns are those of `taut predict`: gpu, n_gpus, hidden, layers, heads, seq, vocab, tp, pp, dp, micro_batch,
        global_batch, schedule, recompute, zero, precision, stack, and more. A wrong row has an `error`.
        """
        import taut

        if len(rows) > ROWS:
            raise DataError(f"rows: {len(rows)} of them, expected at most {ROWS}")
        added = ("step_time_s", "step_time_low_s", "step_time_high_s", "memory_bytes", "fits", "error")
        return [{name: row.get(name) for name in added} for row in taut.predict(rows)]

    def explain(self, plan_file: str) -> str:
        """Tell a plan in words: strategy, where time and memory go, the proof, what it rests on, plainer plans."""
        import taut
        from taut.planning.summary import summary
        from taut.reports.plan_details import details

        found = taut.load_plan(self._file(plan_file))
        return summary(found.sections, width=110, details=details(found, width=110), spaces=found.spaces)

    def verify(self, plan_file: str) -> Answer:
        """Check a plan's certificate without the search: derive bounds again and price sampled plans against them."""
        import taut
        from taut.solver.certificate.verify import Verification

        found = taut.verify(self._file(plan_file))
        answer: Answer = {"holds": found.holds, "faults": list(found.faults), "plan_file": plan_file}
        if isinstance(found, Verification):
            derived = {"step_time_s": found.objective, "lower_bound_s": found.lower_bound, "gap": found.gap}
            about = {"space": found.space, "narrowed": list(found.narrowed), "not_searched": list(found.unsearched)}
            answer |= {**derived, "candidates": found.candidates, "sampled_plans": found.sampled, **about}
        return answer

    def _answer(self, plan: "Plan") -> Answer:
        """What an agent quotes of a plan, which is written to a file named by its content."""
        from taut.planning.proof import band_of

        document = plan.document
        inputs, found = document["inputs"], document["predicted"]
        name = f"plan-{digest([document['strategy'], document['placement'], inputs])[:12]}.json"
        plan.write(self.folder / name)
        bound = {"lower_bound_s": plan.lower_bound_s, "gap": plan.gap, "status": plan.status}
        rates = {"tokens_per_s": found["tokens_per_s"], "mfu": found["mfu"], "band_s": band_of(plan.sections)}
        memory = {"memory_bytes": max(found["memory_bytes"]), "capacity_bytes": min(found["capacity_bytes"])}
        known = [each for each in document.get("plainer", []) if each.get("step_time_s") is not None]
        plainer = [{k: each[k] for k in ("restriction", "step_time_s", "lower_bound_s")} for each in known]
        certificate = {"plan_file": name, "check": f"taut verify {name}"}
        return {
            **{"strategy": repr(plan), "step_time_s": plan.step_time_s, **bound, **rates, **memory},
            **{"beyond": document.get("beyond", []), "plainer": plainer, "certificate": certificate},
        }

    def _name(self, field: str, name: str) -> str:
        """A name of the catalog, or a file of the folder."""
        return str(self._file(name)) if FILES.search(name) or (self.folder / name).exists() else name

    def _checked(self, options: Answer | None) -> Answer:
        """Options whose files lie in the folder."""
        given = dict(options or {})
        for name in ("profile", "memory_model", "calibration", "stack"):
            if isinstance(given.get(name), str):
                given[name] = self._name(name, given[name])
        return given

    def _file(self, name: str) -> Path:
        """A file of the folder; ``DataError`` for one outside of it."""
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder):
            raise DataError(f"{name}: lies outside of the server's folder, expected a file in it")
        return path
