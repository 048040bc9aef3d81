r"""
The words of a command in a shell script, with its variables in place; nothing is run.

(1) A script is a sequence of statements. It is cut where the shell cuts it: at new lines, ``;``, ``&&``, ``||``,
    ``|`` and ``&`` outside of quotes; a backslash at the end of a line joins it with the next.
(2) An assignment ``NAME=value``, ``NAME+=value`` or ``NAME=(words)`` gives a variable its words. ``$NAME``,
    ``${NAME}``, ``${NAME:-value}``, ``${NAME[@]}`` and ``$((a*b))`` are replaced by what stands above them; a variable
    that nothing above gives a value stays as it is written.
(3) Of ``if``, ``case``, ``while``, ``&&`` and ``||`` what the conditions on numbers and texts say is followed once. A
    condition that the text does not decide counts as false, but for an empty variable that nothing gives a value;
    whether it matters is seen by reading once more (``turned``). ``for`` is followed where its values are known; a
    function where it is called.
(4) The command is the statement with the most flags and settings by path. Where no statement has any, it is all
    variables that hold some, as in a file that another script reads.
(5) ``source FILE`` is read in its place if FILE lies in the script's folder or one above; of a path that a variable
    begins, what stands behind the variable counts.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from taut.data.read import read_text
from taut.errors import DataError

NAME = re.compile(r"[A-Za-z_]\w*")
ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=")
LAYOUT = re.compile(r"[EtmL(][EtmL*|()\d,]*")
"""The beginning of a pipeline layout, whose bars are no pipes."""
SETTING = re.compile(r"--|\+{0,2}[A-Za-z_]\w*(\.[\w.]+=|:\S)")
"""The beginning of a flag, or of a setting by path."""
FLAG = re.compile(r"(^|\s)--[A-Za-z]")
HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
DECLARE = {"export", "declare", "local", "readonly", "typeset"}
OPENING = {"!", "time", "eval", "exec"}
COMPARED = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-gt": int.__gt__, "-ge": int.__ge__, "-lt": int.__lt__, "-le": int.__le__,
    ">": int.__gt__, "<": int.__lt__, ">=": int.__ge__, "<=": int.__le__,
}  # fmt: skip
UNKNOWN = re.compile(r"\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*(\[[@*]\])?\}")
GIVEN = re.compile(r"[A-Za-z_]\w*|[1-9@#]")
"""A variable, or what a script or a function is given."""
REDIRECTION = re.compile(r"\d?(>{1,2}|<)(&\d)?")
ALONE = {"if", "elif", "else", "then", "fi", "while", "until", "do", "done", "{", "}", "esac", ";;"}
"""Words that open, part or close what holds statements."""
SOURCES = ("source", ".")
ENDLESS = ("true", ":")
CHANGES = ("let", "read", "unset", "shift", "mapfile")
"""Commands after which variables in their words are not known."""
CHANGED = re.compile(r"printf\s+-v\s|eval\s+[A-Za-z_]\w*\+?=|\(\(\s*\w+\s*([-+*/%]?=[^=]|\+\+|--)")
MOST_WORDS = 20_000
"""Words beyond which a text is no launcher's script."""
MOST_TEXT = 1_000_000
"""Characters of a variable beyond which a text is refused."""
MOST_DEPTH = 20
"""Levels of commands in quotes beyond which a text is refused, and of values in values that are replaced."""


class Part(NamedTuple):
    """A piece of a word, and the quotes that it stands in: ``""`` for none, ``double`` or ``single``."""

    text: str
    quotes: str


class Statement(NamedTuple):
    """
    Words of a statement in pieces.

    ``array``: an array's name, with + where it is extended; ``sign``: what stands before, ``)`` for a case's pattern.
    """

    words: list[list[Part]]
    array: str = ""
    sign: str = ""

    @property
    def first(self) -> str:
        """The first word as it is written."""
        return _text(self.words[0]) if self.words and not self.array else ""


class Command(NamedTuple):
    """Words of a script's command, conditions that the text does not decide, (3), and other commands as long."""

    words: list[str]
    undecided: list[str]
    others: list[list[str]]


def read_command(text: str, folder: Path | None = None, turned: int = -1) -> Command:
    """A script's command, (1) to (5); ``folder``: where it lies; ``turned``: a condition that counts otherwise."""
    script = _Script(folder, turned)
    words = script.command(text, 0)
    return Command(words, script.undecided[:MOST_DEPTH], script.others)


def unknown_words(words: list[str]) -> list[str]:
    """Words of a command that are a variable alone which nothing gives a value, and no value of a flag."""
    before = zip(words, ["", *words], strict=False)
    several = [word for word, flag in before if UNKNOWN.fullmatch(word) and not flag.startswith("--")]
    return [word for word in several if not word.lstrip("${").startswith("SLURM_")]


class _Script:
    """Variables of a script, read from its beginning to its end."""

    def __init__(self, folder: Path | None, turned: int) -> None:
        self.values: dict[str, list[str]] = {}
        self.words = self.sourced = self.depth = 0
        self.folder, self.turned = folder, turned
        self.undecided: list[str] = []
        self.others: list[list[str]] = []
        self.functions: dict[str, list[Statement]] = {}
        self.commands: list[list[str]] = []
        self.holds, self.skipped, self.tests, self.leaves = True, False, False, ""

    def command(self, text: str, depth: int) -> list[str]:
        """The words of the statement with the most flags, (4)."""
        if depth > MOST_DEPTH:
            raise DataError(f"command line: commands in quotes lie in one another, expected at most {MOST_DEPTH}")
        self.commands, outer = [], self.commands
        self._block(list(_cut(_statements(text))), 0, (), True)
        if depth == 0 and not any(map(_count_settings, self.commands)):
            for body in list(self.functions.values()):
                self._block(body, 0, (), True)
        several, self.commands = self.commands, outer
        commands: list[list[str]] = []
        for words in several:
            quoted = [_holds_command(word) and word != text for word in words]
            inner = [self.command(each, depth + 1) if cut else [each] for each, cut in zip(words, quoted, strict=True)]
            flat = [word for each in inner for word in each]
            if not flat:
                continue
            if commands and SETTING.match(flat[0]):
                # Settings in lines of their own, as in a file of them.
                commands[-1] += flat
            else:
                commands.append(flat)
        most = max(commands, key=_count_settings, default=[])
        if size := _count_settings(most):
            if depth == 0:
                self.others = [each for each in commands if _count_settings(each) == size and each != most][:MOST_DEPTH]
            return most
        cut = [[each for word in words for each in word.split()] for words in self.values.values()]
        held = [word for words in cut if _count_settings(words) for word in words]
        return held or [word for words in commands for word in words]

    def _block(self, several: list[Statement], at: int, ends: tuple[str, ...], active: bool) -> int:
        """Follow statements from a place to one that begins with a word of ``ends``; its place."""
        while at < len(several) and (several[at].first not in ends or several[at].sign == ")"):
            at = self._statement(several, at, active)
        return at

    def _statement(self, several: list[Statement], at: int, active: bool) -> int:
        """Follow the statement at a place, with what it opens, (3); the place behind it."""
        line = several[at]
        same = {"&&": self.holds, "||": not self.holds, "|": True}.get(line.sign, True)
        self.skipped = self.skipped if line.sign == "|" else not same
        active = active and not self.skipped and not self.leaves
        match line.first:
            case "if" if any(each.first == "then" for each in several[at:]):
                ran = False
                while at < len(several) and several[at].first in ("if", "elif"):
                    at, holds = self._condition(several, at + 1, "then", active and not ran)
                    at = self._block(several, at + 1, ("elif", "else", "fi"), active and not ran and holds)
                    ran = ran or holds
                if at < len(several) and several[at].first == "else":
                    at = self._block(several, at + 1, ("fi",), active and not ran)
            case "while" | "until" if any(each.first == "do" for each in several[at:]):
                start, goes = at + 1, active
                for _ in range(MOST_DEPTH):
                    at, holds = self._condition(several, start, "do", goes)
                    at, goes = self._pass(several, at + 1, goes and holds == (line.first == "while"))
                    if not goes or several[start].first in ENDLESS:
                        break
            case "for" | "select" if len(line.words) > 1:
                words = [each for word in line.words[3:] for each in self._expanded(word)] if active else []
                known = 0 < len(words) <= MOST_DEPTH and not any("$" in each or "`" in each for each in words)
                start, goes = self._block(several, at + 1, ("do",), False) + 1, active
                before = self.values
                for value in words if known else ["", ""]:
                    before = dict(self.values)
                    if goes:
                        self.values.pop(_text(line.words[1]), None)
                        self.values |= {_text(line.words[1]): [value]} if known else {}
                    at, goes = self._pass(several, start, goes)
                if not known:  # what a second pass changes is not known
                    self.values = {name: each for name, each in self.values.items() if before.get(name) == each}
            case "case" if len(line.words) > 1:
                value = "".join(self._expanded(line.words[1], split=False))
                at, ran = at + 1, False
                while at < len(several) and several[at].first != "esac":
                    holds = self._matches(value, several[at], active and not ran)
                    at = self._block(several, at + 1, (";;", "esac"), active and not ran and holds)
                    at, ran = at + (at < len(several) and several[at].first == ";;"), ran or holds
            case "{":
                at = self._block(several, at + 1, ("}",), active)
            case word if word.endswith("()"):
                start = at + 1 + (at + 1 < len(several) and several[at + 1].first == "{")
                at = self._block(several, start, ("}",), False)
                self.functions |= {word[:-2]: several[start:at]} if active else {}
            case _ if active:
                self._simple(line)
        return at + 1

    def _pass(self, several: list[Statement], at: int, active: bool) -> tuple[int, bool]:
        """Follow one pass of a loop; the place of its end, and whether another may come."""
        at = self._block(several, at, ("done",), active)
        goes = active and self.leaves not in ("break", "return")
        if active and self.leaves != "return":
            self.leaves = ""
        return at, goes

    def _condition(self, several: list[Statement], at: int, end: str, active: bool) -> tuple[int, bool]:
        """The place of ``then`` or ``do`` behind a condition, and whether the condition holds."""
        self.tests, self.holds = active, False
        at = self._block(several, at, (end,), active)
        self.tests, holds = False, active and self.holds
        self.holds = True
        return at, holds

    def _matches(self, value: str, pattern: Statement, active: bool) -> bool:
        """Whether a value is as a pattern of a case says; False where it is not to be followed."""
        several = [_text(word).strip("()") for word in pattern.words]
        if not active or "*" in several:
            return active
        return self._decide(
            f"case {value} in {'|'.join(several)}", any(fnmatchcase(value, each) for each in several), value
        )

    def _decide(self, text: str, holds: bool | None, *words: str) -> bool:
        """A condition that holds or does not, or counts as ``holds`` where words of it are not known."""
        if holds is not None and not any("$" in word or "`" in word for word in words):
            return holds
        self.undecided.append(text)
        return bool(holds) is not (self.turned == len(self.undecided) - 1)

    def _simple(self, line: Statement) -> None:
        """Follow an assignment, a test or a command."""
        if line.array:
            return self._assign(line.array, [each for word in line.words for each in self._expanded(word)])
        negates = line.first == "!"
        words = line.words[negates:]
        first = _text(words[0]) if words else ""
        if first in ("break", "continue", "return"):
            self.leaves = first
        elif first in CHANGES or CHANGED.match(" ".join(map(_text, words))):
            names = [str(place) for place in range(1, 10)] + ["@", "#"] if first == "shift" else []
            for name in [*names, *NAME.findall(" ".join(map(_text, words)))]:
                self.values.pop(name, None)
        elif first.startswith(("[", "((")) or first == "test":
            self.holds = self._test(words)
        elif first in SOURCES and len(words) >= 2:
            self._source("".join(self._expanded(words[1], split=False)))
        elif first in self.functions and self.depth < MOST_DEPTH:
            given = [each for word in words[1:] for each in self._expanded(word)]
            places = {str(place): [each] for place, each in enumerate(given, 1)} | {"@": given, "#": [str(len(given))]}
            before = {name: self.values[name] for name in places if name in self.values}
            self.values, self.depth = self.values | places, self.depth + 1
            self._block(self.functions[first], 0, (), True)
            self.depth, self.leaves = self.depth - 1, ""
            self.values = {name: value for name, value in self.values.items() if name not in places} | before
            self.holds = True
        else:
            found = self._run(words)
            self.words += len(found)
            if self.words > MOST_WORDS:
                raise DataError(f"command line: more than {MOST_WORDS} words, expected a start script")
            self.commands += [found] if found else []
            succeeds = not found or first in ENDLESS or not self.tests
            self.holds = succeeds or self._decide(" ".join(found), negates, "$")
        self.holds = self.holds is not negates
        return None

    def _source(self, name: str) -> None:
        """Follow a file that the script reads, if it is found, (5)."""
        behind = re.split(r"[)}`]|\$\w+", name)[-1].lstrip("/")
        folders = [self.folder, *self.folder.absolute().parents[:3]] if self.folder is not None else []
        found = next((folder / behind for folder in folders if behind and (folder / behind).is_file()), None)
        if found is None or self.sourced >= MOST_DEPTH:
            return
        self.sourced += 1
        text = read_text(found, "a file that a script reads", MOST_TEXT)
        self._block(list(_cut(_statements(text))), 0, (), True)

    def _test(self, condition: list[list[Part]]) -> bool:
        """Whether a test of numbers or texts holds, (3)."""
        text = " ".join(map(_text, condition))
        several = [each for word in condition for each in (self._expanded(word, split=False) or [""])]
        if text.startswith("(("):
            several = re.sub(r"([=!<>]=|[<>])", r" \1 ", " ".join(several).replace("(", " ").replace(")", " ")).split()
            several = [self.values.get(each, [each])[0] for each in several]
        return self._compared([each for each in several if each not in ("[", "]", "[[", "]]", "test")], text)

    def _compared(self, words: list[str], text: str) -> bool:
        """Whether a comparison holds; a variable that nothing gives a value is empty, as in the shell."""
        for sign, join in (("-o", any), ("-a", all)):
            if sign in words[1:-1]:
                place = words.index(sign)
                return join([self._compared(words[:place], text), self._compared(words[place + 1 :], text)])
        negates = words[:1] == ["!"]
        left, sign, right = ([UNKNOWN.sub("", each) for each in words[negates:]] + [""] * 3)[:3]
        holds: bool | None = None
        if len(words) == negates + 2 and left in ("-z", "-n"):
            holds = (sign == "") == (left == "-z")
        elif len(words) == negates + 3 and sign in ("=", "==", "!="):
            holds = fnmatchcase(left, right) == (sign != "!=")
        elif len(words) == negates + 3 and left.isdecimal() and right.isdecimal() and sign in COMPARED:
            holds = bool(COMPARED[sign](int(left), int(right)))
        if "$" in left + sign + right:
            holds = None
        return self._decide(text, None if holds is None else holds is not negates, *words)

    def _run(self, statement: list[list[Part]]) -> list[str]:
        """Assign what a statement assigns; returns the words of its command."""
        words = []
        for place, word in enumerate(statement):
            before = _text(statement[place - 1]) if place else ""
            text = _text(word)
            if not word[0].quotes and text.count("(") != text.count(")"):
                text = text.strip("()")
                word = [Part(text, "")] if len(word) == 1 else word
            target = REDIRECTION.fullmatch(before) is not None
            if (text or word[0].quotes) and not target and (word[0].quotes or not REDIRECTION.match(text)):
                words.append(word)
        while words and "".join(part.text for part in words[0]) in OPENING | DECLARE:
            declares = "".join(part.text for part in words.pop(0)) in DECLARE
            while declares and words and words[0][0].text.startswith("-"):
                words.pop(0)
        found: dict[str, list[str]] = {}
        while words and words[0][0].quotes == "" and (match := ASSIGNED.match(words[0][0].text)):
            head, *more = words.pop(0)
            value = [Part(head.text[match.end() :], ""), *more]
            found[match[1] + match[2]] = self._expanded(value, split=False)
        for name, value_words in found.items():
            # A value before a command holds for the command alone; scripts state defaults so as well.
            self._assign(name, value_words)
        return [each for word in words for each in self._expanded(word)]

    def _assign(self, name: str, words: list[str]) -> None:
        if sum(map(len, words)) > MOST_TEXT:
            raise DataError(f"command line: a variable of more than {MOST_TEXT} characters, expected a start script")
        if not name.endswith("+"):
            self.values[name] = words
            return
        before = self.values.get(name[:-1], [])
        alone = len(before) == len(words) == 1
        self.values[name[:-1]] = [before[0] + words[0]] if alone else before + words

    def _expanded(self, word: list[Part], *, split: bool = True) -> list[str]:
        """The words that a word becomes with its variables in place, (2)."""
        found, some = [""], False
        for text, quotes in word:
            if quotes == "single":
                found[-1] += text
                some = True
                continue
            empty = False
            for piece, is_list in self._pieces(text, 0):
                cut, empty = [piece], is_list and not piece
                if is_list and quotes == "double":
                    cut = piece.split("\0")
                elif is_list or (quotes == "" and split and "$" not in piece):
                    cut = piece.replace("\0", " ").split()
                if not cut:
                    continue
                found[-1] += cut[0]
                found += cut[1:]
            some = some or (quotes == "double" and not empty)
        return [each for each in found if each or some]

    def _pieces(self, text: str, depth: int) -> Iterator[tuple[str, bool]]:
        """Text with its variables in place, and whether a piece is the words of an array."""
        at = 0
        while at < len(text):
            start = text.find("$", at)
            if start < 0 or start + 1 == len(text) or depth > MOST_DEPTH:
                break
            if start > at:
                yield text[at:start], False
            end, piece, is_list = self._variable(text, start, depth)
            yield piece, is_list
            at = end
        if at < len(text):
            yield text[at:], False

    def _variable(self, text: str, start: int, depth: int) -> tuple[int, str, bool]:
        """Where the reference at ``start`` ends, what it stands for, and whether that is the words of an array."""
        after = text[start + 1]
        if after == "{":
            end = _closing(text, start + 1, "{", "}")
            return end, *self._braced(text[start + 2 : end - 1], text[start:end], depth)
        if text.startswith("((", start + 1):
            end = _closing(text, start + 1, "(", ")")
            inner = "".join(piece for piece, _ in self._pieces(text[start + 3 : end - 2], depth + 1))
            return end, self._arithmetic(inner, text[start:end]), False
        if after == "(":
            end = _closing(text, start + 1, "(", ")")
            return end, text[start:end], False
        if match := GIVEN.match(text, start + 1):
            value = self.values.get(match[0])
            listed = match[0] == "@" and value is not None
            return match.end(), ("\0" if listed else " ").join(value) if value is not None else f"${match[0]}", listed
        return start + 2, text[start : start + 2], False

    def _braced(self, inner: str, whole: str, depth: int) -> tuple[str, bool]:
        """What ``${inner}`` stands for, and whether that is the words of an array; ``whole`` where it is not known."""
        match = re.match(r"(\w+|[@#])(\[[@*]\])?(:?[-=?+])?", inner)
        if match is None:
            return whole, False
        name, listed, sign = match[1], match[2] or match[1] == "@", match[3]
        if not sign and match.end() < len(inner):
            return whole, False
        value = self.values.get(name)
        if value is not None and (any(value) or ":" not in (sign or "")):
            if (sign or "").endswith("+"):
                return "".join(piece for piece, _ in self._pieces(inner[match.end() :], depth + 1)), False
            return ("\0" if listed else " ").join(value), bool(listed)
        if sign and sign[-1] in "-=":
            usual = "".join(piece for piece, _ in self._pieces(inner[match.end() :].strip("\"'"), depth + 1))
            if sign[-1] == "=":
                self.values[name] = [usual]
            return usual, False
        return ("", True) if (sign or "").endswith("+") else (whole, False)

    def _arithmetic(self, text: str, whole: str) -> str:
        """An arithmetic expression of whole numbers and variables as a number; ``whole`` where it is none."""
        text = NAME.sub(lambda match: " ".join(self.values.get(match[0], [match[0]])), text)
        if len(text) > 200 or not re.fullmatch(r"[\d\s()+*/%-]+", text) or "**" in text:
            return whole
        try:
            return str(_number(ast.parse(text.strip().replace("//", "/"), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
            return whole


def _number(node: ast.expr) -> int:
    """The value of an expression of whole numbers; division rounds towards zero, as in a shell."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    if not isinstance(node, ast.BinOp):
        raise ValueError
    left, right = _number(node.left), _number(node.right)
    match node.op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return int(left / right)
        case ast.Mod():
            return left % right
    raise ValueError


def _closing(text: str, start: int, opening: str, closing: str) -> int:
    """The place behind the bracket that closes the one at ``start``, or the end of the text."""
    level = 0
    for place in range(start, len(text)):
        level += (text[place] == opening) - (text[place] == closing)
        if level == 0:
            return place + 1
    return len(text)


def _count_settings(words: list[str]) -> int:
    """Flags and settings by path among words."""
    return sum(SETTING.match(word) is not None for word in words)


def _holds_command(word: str) -> bool:
    """Whether a word is a command in quotes, as of ``bash -c``; what a shell would run in its place is none."""
    own = re.sub(r"\$\(.*?\)|`.*?`", "", word, flags=re.DOTALL)
    return bool(re.search(r"\s--?[A-Za-z]", own)) and not word.lstrip().startswith(("{", "["))


def _text(word: Iterable[Part]) -> str:
    """A word as it is written, without its quotes."""
    return "".join(part.text for part in word)


def _cut(several: Iterable[Statement]) -> Iterator[Statement]:
    """Statements with the words of ``ALONE``, names of functions and patterns of cases as statements of their own."""
    cases: list[bool] = []  # whether a pattern comes next
    patterns: list[list[Part]] = []
    words: list[list[Part]] = [[]]
    for line in several:
        # An array that stands behind a word of ALONE, or a pattern, is a statement's beginning.
        words, sign = list(line.words), line.sign if words else ""
        while words and not line.array:
            word, size = _text(words[0]), 1
            if word == "esac" and cases:
                cases.pop()
            elif cases and cases[-1] and word != ";;":
                patterns.append(words.pop(0))
                if word.endswith(")"):
                    yield Statement(patterns, "", ")")
                    patterns, cases[-1] = [], False
                continue
            elif word == ";;" and cases:
                cases[-1] = True
            elif word == "case" and len(words) > 2:
                cases, size = [*cases, True], 2
            elif word == "function" and len(words) > 1:
                words[:2] = [[Part(_text(words[1]).removesuffix("()") + "()", "")]]
            elif len(words) > 1 and _text(words[1]) == "()":
                words[:2] = [[Part(f"{word}()", "")]]
            elif word not in ALONE and not (word.endswith("()") and not words[0][0].quotes and NAME.match(word)):
                break
            yield Statement(words[:size], "", sign)
            words, sign = words[size + (word == "case") :], ""
        if words or line.array:
            yield Statement(words, line.array, sign)
            words = words or [[]]


def _statements(text: str) -> Iterator[Statement]:
    """The statements of a text, (1)."""
    text = _without_here_documents(text.replace("\r", ""))
    words: list[list[Part]] = []
    word: list[Part] | None = None
    array, at, before = "", 0, ""

    def add(piece: str, quotes: str) -> None:
        nonlocal word
        word = [] if word is None else word
        if word and word[-1].quotes == quotes == "":
            word[-1] = Part(word[-1].text + piece, "")
        else:
            word.append(Part(piece, quotes))

    def end_word() -> None:
        nonlocal word
        if word is not None:
            words.append(word)
        word = None

    while at <= len(text):
        sign = text[at : at + 1]
        if sign == "'" or (sign == "$" and text[at + 1 : at + 2] == "'"):
            end = text.find("'", at + 1 + (sign == "$"))
            if end < 0:
                raise DataError("command line: No closing quotation, expected flags such as --micro-batch-size 1")
            add(text[at + 1 + (sign == "$") : end], "single")
            at = end + 1
        elif sign == '"':
            at, inner = _double(text, at + 1)
            add(inner, "double")
        elif text.startswith("\\\n", at):
            end_word()
            at += 2
        elif sign == "\\" and at + 1 < len(text):
            add(text[at + 1], "single")
            at += 2
        elif sign == "$" and text[at + 1 : at + 2] in ("{", "("):
            end = _closing(text, at + 1, text[at + 1], {"{": "}", "(": ")"}[text[at + 1]])
            add(text[at:end], "")
            at = end
        elif sign == "`":
            end = text.find("`", at + 1)
            end = len(text) if end < 0 else end + 1
            add(text[at:end], "single")
            at = end
        elif sign == "#" and word is None:
            at = text.find("\n", at)
            at = len(text) if at < 0 else at
        elif sign == "(" and word and not array and ASSIGNED.fullmatch(_text(word)):
            array, word = _text(word)[:-1], None
            if words:
                yield Statement(words, "", before)
                words, before = [], "|"
            at += 1
        elif sign == ")" and array:
            end_word()
            yield Statement(words, array, before)
            words, array, before = [], "", ""
            at += 1
        elif sign == "|" and word and LAYOUT.fullmatch(word[-1].text):
            add(sign, "")
            at += 1
        elif sign in (" ", "\t") or (array and sign == "\n"):
            end_word()
            at += 1
        elif sign in ("", "\n", ";", "|", "&") and not array:
            twice = text[at : at + 2] if text[at : at + 2] in ("&&", "||", ";;") else sign
            # A redirection such as 2>&1 is no end of a statement.
            if sign == "&" and word is not None and word[-1].text.endswith(">"):
                add(sign, "")
                twice = sign
            elif (
                twice in ("&&", "||")
                and any(_text(each).startswith(("[[", "((")) for each in words)
                and not any(_text(each).endswith(("]]", "))")) for each in [*words, word or []])
            ):
                end_word()
                words.append([Part("-a" if twice == "&&" else "-o", "")])
            else:
                end_word()
                if words:
                    yield Statement(words, "", before)
                if twice == ";;":
                    yield Statement([[Part(twice, "")]])
                if twice in ("&&", "||", "|"):
                    before = twice
                elif words or sign == ";":
                    before = ""
                words = []
            at += len(twice) or 1
        elif sign == "":
            raise DataError("command line: No closing bracket of an array, expected flags such as --micro-batch-size 1")
        else:
            add(sign, "")
            at += 1


def _double(text: str, at: int) -> tuple[int, str]:
    """The place behind double quotes, and what stands in them."""
    found: list[str] = []
    while at < len(text):
        if text[at] == '"':
            return at + 1, "".join(found)
        if text.startswith("\\\n", at):
            found.append(" ")
            at += 2
            continue
        if text[at] == "\\" and text[at + 1 : at + 2] in ('"', "\\"):
            at += 1
        elif text.startswith(("${", "$("), at):
            end = _closing(text, at + 1, *("{", "}") if text[at + 1] == "{" else ("(", ")"))
            found.append(text[at:end])
            at = end
            continue
        found.append(text[at])
        at += 1
    raise DataError("command line: No closing quotation, expected flags such as --micro-batch-size 1")


def _without_here_documents(text: str) -> str:
    """The text without here-documents (``<<MARK``), up to the line that is their mark; those with flags are kept."""
    kept, body, mark = list[str](), list[str](), ""
    for line in text.split("\n"):
        if mark and line.strip() != mark:
            body.append(line)
            continue
        if mark:
            kept += body if any(FLAG.search(each) for each in body) else []
            mark, body = "", []
            continue
        match = HERE_DOCUMENT.search(line)
        mark = match[2] if match else ""
        kept.append(line[: match.start()] + line[match.end() :] if match else line)
    return "\n".join(kept)
