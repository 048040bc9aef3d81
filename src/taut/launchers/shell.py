r"""
The words of a command in a shell script, with its variables in place; nothing is run.

(1) A script is a sequence of statements. It is cut where the shell cuts it: at new lines, ``;``, ``&&``, ``||``,
    ``|`` and ``&`` outside of quotes; a backslash at the end of a line joins it with the next.
(2) An assignment ``NAME=value``, ``NAME+=value`` or ``NAME=(words)`` gives a variable its words. ``$NAME``,
    ``${NAME}``, ``${NAME:-value}``, ``${NAME[@]}`` and ``$((a*b))`` are replaced by what stands above them; a variable
    that nothing above gives a value stays as it is written.
(3) Of ``if`` the branch is taken whose condition on numbers and texts holds; a condition that the text does not decide
    counts as false.
(4) The command is the statement with the most flags and settings by path. Where no statement has any, it is all
    variables that hold some, as in a file that another script reads.
(5) ``source FILE`` is read in its place if FILE lies in the script's folder or one above; of a path that a variable
    begins, what stands behind the variable counts.
"""

import ast
import re
from collections.abc import Iterator
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
OPENING = {"then", "do", "{", "else", "!", "time", "eval", "exec"}
CLOSING = {"fi", "done", "}", "esac"}
COMPARED = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-gt": int.__gt__, "-ge": int.__ge__, "-lt": int.__lt__, "-le": int.__le__,
    ">": int.__gt__, "<": int.__lt__, ">=": int.__ge__, "<=": int.__le__,
}  # fmt: skip
UNKNOWN = re.compile(r"\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*(\[[@*]\])?\}")
SOURCES = ("source", ".")
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
    """Words of a statement in pieces, and for an array its name, with + where it is extended."""

    words: list[list[Part]]
    array: str = ""


def command_words(text: str, folder: Path | None = None) -> list[str]:
    """The words of a script's command, (1) to (5); ``folder``: where the script lies."""
    return _Script(folder).command(text, 0)


def unknown_words(words: list[str]) -> list[str]:
    """Words of a command that are a variable alone which nothing gives a value, and no value of a flag."""
    before = zip(words, ["", *words], strict=False)
    return [word for word, flag in before if UNKNOWN.fullmatch(word) and not flag.startswith("--")]


class _Script:
    """Variables of a script, read from its beginning to its end."""

    def __init__(self, folder: Path | None) -> None:
        self.values: dict[str, list[str]] = {}
        self.words = self.sourced = 0
        self.folder = folder

    def command(self, text: str, depth: int) -> list[str]:
        """The words of the statement with the most flags, (4)."""
        if depth > MOST_DEPTH:
            raise DataError(f"command line: commands in quotes lie in one another, expected at most {MOST_DEPTH}")
        commands: list[list[str]] = []
        for words in self._commands(text):
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
        if _count_settings(most):
            return most
        cut = [[each for word in words for each in word.split()] for words in self.values.values()]
        held = [word for words in cut if _count_settings(words) for word in words]
        return held or [word for words in commands for word in words]

    def _commands(self, text: str) -> Iterator[list[str]]:
        """The words of every statement that is no assignment, in the branches that are taken, (3)."""
        taken: list[tuple[bool, bool]] = []
        for statement in _statements(text):
            active = all(here for here, _ in taken)
            if statement.array:
                if active:
                    self._assign(statement.array, [each for word in statement.words for each in self._expanded(word)])
                continue
            first = "".join(part.text for part in statement.words[0])
            if first in ("if", "elif", "else", "fi"):
                taken = self._branch(taken, first, statement.words[1:])
                if first != "else":
                    continue
                statement, active = Statement(statement.words[1:]), all(here for here, _ in taken)
            if active and first in SOURCES and len(statement.words) == 2:
                yield from self._sourced("".join(self._expanded(statement.words[1], split=False)))
                continue
            if active and statement.words and (words := self._run(statement.words)):
                self.words += len(words)
                if self.words > MOST_WORDS:
                    raise DataError(f"command line: more than {MOST_WORDS} words, expected a start script")
                yield words

    def _sourced(self, name: str) -> Iterator[list[str]]:
        """The statements of a file that the script reads, none if it is not found, (5)."""
        behind = re.split(r"[)}`]|\$\w+", name)[-1].lstrip("/")
        folders = [self.folder, *self.folder.absolute().parents[:3]] if self.folder is not None else []
        found = next((folder / behind for folder in folders if behind and (folder / behind).is_file()), None)
        if found is None or self.sourced >= MOST_DEPTH:
            return
        self.sourced += 1
        yield from self._commands(read_text(found, "a file that a script reads", MOST_TEXT))

    def _branch(self, taken: list[tuple[bool, bool]], word: str, rest: list[list[Part]]) -> list[tuple[bool, bool]]:
        """The open ``if`` after a word: whether the branch of each runs, and whether one of its branches has run."""
        if word == "if":
            holds = all(here for here, _ in taken) and self._holds(rest)
            return [*taken, (holds, holds)]
        if not taken:
            return taken
        *outer, (_, ran) = taken
        if word == "fi":
            return outer
        holds = not ran and (word == "else" or self._holds(rest))
        return [*outer, (holds, ran or holds)]

    def _holds(self, condition: list[list[Part]]) -> bool:
        """Whether a condition on numbers or texts holds; False where the text does not decide it, (3)."""
        words = [each for word in condition for each in (self._expanded(word, split=False) or [""])]
        words = [word for word in words if word not in ("[", "]", "[[", "]]", "((", "))", "test")]
        if len(words) == 2 and words[0] in ("-z", "-n"):
            return (words[1] == "") == (words[0] == "-z") and "$" not in words[1]
        if len(words) != 3 or any("$" in word for word in words):
            return False
        left, sign, right = words
        if sign in ("=", "==", "!="):
            return (left == right) == (sign != "!=")
        numbers = left.isdecimal() and right.isdecimal() and sign in COMPARED
        return numbers and bool(COMPARED[sign](int(left), int(right)))

    def _run(self, statement: list[list[Part]]) -> list[str]:
        """Assign what a statement assigns; returns the words of its command."""
        words = list(statement)
        while words and "".join(part.text for part in words[0]) in OPENING | CLOSING | DECLARE:
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
            for piece, is_list in self._pieces(text, 0):
                cut = [piece]
                if is_list and quotes == "double":
                    cut = piece.split("\0")
                elif is_list or (quotes == "" and split and "$" not in piece):
                    cut = piece.replace("\0", " ").split()
                if not cut:
                    continue
                found[-1] += cut[0]
                found += cut[1:]
            some = some or quotes == "double"
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
        if match := NAME.match(text, start + 1):
            value = self.values.get(match[0])
            return match.end(), " ".join(value) if value is not None else f"${match[0]}", False
        return start + 2, text[start : start + 2], False

    def _braced(self, inner: str, whole: str, depth: int) -> tuple[str, bool]:
        """What ``${inner}`` stands for, and whether that is the words of an array; ``whole`` where it is not known."""
        match = re.match(r"(\w+)(\[[@*]\])?(:?[-=?+])?", inner)
        if match is None:
            return whole, False
        name, listed, sign = match.groups()
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


def _statements(text: str) -> Iterator[Statement]:
    """The statements of a text, (1)."""
    text = _without_here_documents(text.replace("\r", ""))
    words: list[list[Part]] = []
    word: list[Part] | None = None
    array, at = "", 0

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
        elif sign == "(" and word and not array and ASSIGNED.fullmatch("".join(part.text for part in word)):
            array, word = "".join(part.text for part in word)[:-1], None
            if words:
                yield Statement(words)
                words = []
            at += 1
        elif sign == ")" and array:
            end_word()
            yield Statement(words, array)
            words, array = [], ""
            at += 1
        elif sign == "|" and word and LAYOUT.fullmatch(word[-1].text):
            add(sign, "")
            at += 1
        elif sign in (" ", "\t") or (array and sign == "\n"):
            end_word()
            at += 1
        elif sign in ("", "\n", ";", "|", "&") and not array:
            # A redirection such as 2>&1 is no end of a statement.
            if sign == "&" and word is not None and word[-1].text.endswith(">"):
                add(sign, "")
            else:
                end_word()
                if words:
                    yield Statement(words)
                words = []
            at += 1
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
