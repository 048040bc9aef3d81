"""
Lines as a tool printed them, without what launchers and collectors of logs put before every line.

Known are Open MPI's ``[1,0]<stdout>:``, ranks of ``srun --label`` (``0: ``), names of hosts and pods, times of day,
and escapes of terminals. A prefix goes only where a line of a table or of remarks follows it.
"""

import re

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PARTS = (
    # times
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?",
    r"\[?[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d\]?",
    r"\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?:?",
    # Open MPI, and what else stands in brackets
    r"\[[\w.@/-]*\d+,\s*\d+\]\s*<std(?:out|err)>\s*:",
    r"\[[\w./:-]+\]:?",
    # Kubernetes' own log
    r"std(?:out|err) [FP]",
    # a rank, a host, or a service with its process
    r"[\w.-]+(?:\[\d+\])?\s*[:|]",
)
_PREFIX = re.compile(rf"\s*(?:{'|'.join(_PARTS)}) ?")
_TABLE = re.compile(r"\s*(#|\d+\s+\d|GPU\d+\s|\d+\s+N/A|memcpy |SUM |Running |Waiving )|\s*$")
MOST_PREFIXES = 4


def plain_lines(text: str) -> list[str]:
    """Lines of a text without the prefixes of launchers, and without escapes."""
    return [_plain(line) for line in _ESCAPE.sub("", text).splitlines()]


def _plain(line: str) -> str:
    rest = line
    for _ in range(MOST_PREFIXES):
        if _TABLE.match(rest):
            return rest
        match = _PREFIX.match(rest)
        if match is None:
            break
        rest = rest[match.end() :]
    return rest if _TABLE.match(rest) else line
