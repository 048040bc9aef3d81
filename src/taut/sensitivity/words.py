"""The sensitivity of a plan to single terms, in words."""

import math
from textwrap import wrap

from taut.sensitivity.box import BoxRegret
from taut.sensitivity.break_even import WINS, Row
from taut.sensitivity.points import GAP
from taut.words import percent


def box_text(found: BoxRegret, *, width: int) -> str:
    """A box's regret in a paragraph of so many columns."""
    box, (low, high) = found.box, found.slowdown
    terms = {"seconds of links": box.links, "of layers": box.layers, "bytes of memory": box.memory}
    given = ", ".join(f"{name} within {100 * error:g} %" for name, error in terms.items() if error)
    words = f"With {given} of what the plan states (links {low:.3g} to {high:.3g} times as slow beside layers), "
    if found.at_most is None:
        words += "nothing is proven about the best plan: give the searches more time."
    else:
        words += f"this plan is at most {percent(found.at_most)} slower than the best."
    if found.better:
        words += f" At some of these prices it is {percent(found.at_least)} slower than {found.better}."
    return "\n".join(["if several terms are wrong", *wrap(words, width), f"({found.searches} searches)"])


def break_even_text(rows: list[Row], *, width: int) -> str:
    """A line for every factor of every term, and what wins at the ends."""
    head = f"{'term':<16}{'times':>7}{'this plan':>12}{'best found':>12}{'slower by at most':>19}"
    lines = ["if one term is wrong", head]
    for row in rows:
        term = {"links": "links' seconds", "memory": "memory", "imbalance": "fullest rank"}[row.term]
        own = f"{row.seconds:.4g} s" if math.isfinite(row.seconds) else "too full"
        best = f"{row.best_s:.4g} s" if math.isfinite(row.best_s) else "none"
        figures = f"{own:>12}{best:>12}{percent(row.at_most):>19}"
        lines.append(f"{term:<16}{row.factor:>7.3g}{figures}")
        if row.winner:
            lines += wrap(f"here {row.winner} wins", width, initial_indent="    ", subsequent_indent="    ")
    note = (
        f"Slower by at most: at any factor from 1 to this one. Links {1.25:g} times as slow are as layers {1.25:g} "
        f"times as fast. A plan wins by more than {100 * WINS:g} %; searches stop at a gap of {100 * GAP:g} %."
    )
    if any(row.term == "imbalance" for row in rows):
        note += " Fullest rank: the load of the fullest rank's experts."
    return "\n".join([*lines, "", *wrap(note, width)])
