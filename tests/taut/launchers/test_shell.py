"""Words of start scripts with their variables in place, by hand."""

import pytest

from taut.errors import DataError
from taut.launchers.shell import command_words

CASES = {
    "defaults": ("TP=${TP:-2}\nPP=8\npython x.py --tp $TP --pp ${PP} --ep ${EP:=4}", "--tp 2 --pp 8 --ep 4"),
    "a value above a default": ("TP=4\nTP=${TP:-2}\nx.py --tp ${TP}", "--tp 4"),
    "a default of a default": ("x.py --tp ${A:-${B:-3}}", "--tp 3"),
    "nothing above": ("x.py --tp ${TP}", "--tp ${TP}"),
    "sums": ("T=2\nx.py --gbs $((T * 3 + 2)) --w $((7/2))", "--gbs 8 --w 3"),
    "an array": ("A=(\n  --tp 8  # ranks\n  --pp 2\n)\nA+=(--cp 2)\ntorchrun x.py ${A[@]}", "--tp 8 --pp 2 --cp 2"),
    "an array in quotes": ('A=(--tp 8 "--name=a b")\nx.py "${A[@]}"', "--tp 8 --name=a b"),
    "text over lines": ('A="\n --tp 8 \\\n --pp 2"\nA+=" --cp 2"\nx.py $A', "--tp 8 --pp 2 --cp 2"),
    "export": ("export TP=8 PP=2\nx.py --tp $TP --pp $PP", "--tp 8 --pp 2"),
    "a command in a variable": ('C="x.py --tp 8"\neval $C', "--tp 8"),
    "a command in quotes": ('T=8\nsrun -N 2 bash -c "python x.py --tp $T 2>&1 | tee a.log"', "--tp 8"),
    "a document": ("cat <<EOF > a.json\n{\"it's\": '--no 1'\nEOF\nx.py --tp 8", "--tp 8"),
    "a branch": ("T=8\nif [ $T -gt 1 ]; then\nA=--sp\nelse\nA=--no\nfi\nx.py --tp $T $A", "--tp 8 --sp"),
    "the other branch": ("T=1\nif [[ $T -gt 1 ]]; then A=--sp; else A=--no; fi\nx.py --tp $T $A", "--tp 1 --no"),
    "inner branches": ("if [ 1 = 2 ]; then\nif [ 1 = 1 ]; then A=--a; fi\nfi\nx.py --tp 1 $A", "--tp 1 $A"),
    "a comment": ("x.py --tp 8 # --pp 2\n", "--tp 8"),
    "other commands": ("mkdir -p a\necho --a\nx.py --tp 8 --pp 2\nls --all", "--tp 8 --pp 2"),
    "variables alone": ('A=(--tp 8)\nB="--pp 2"', "--tp 8 --pp 2"),
    "lines of flags": ("--tp 8\n--pp 2\n--sp\n", "--tp 8 --pp 2 --sp"),
    "a layout": ("x.py --layout Et*3|(t*4|)*2tL --tp 8", "--layout Et*3|(t*4|)*2tL --tp 8"),
    "settings by path": ("python x.py model.tp=4 \\\n train.mbs=1", "model.tp=4 train.mbs=1"),
    "a value before the command": ("CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun x.py --tp 8", "--tp 8"),
}


@pytest.mark.parametrize("case", CASES)
def test_words_of_scripts(case: str) -> None:
    """The words of the command from its first flag or setting on."""
    script, words = CASES[case]
    found = [word for word in command_words(script) if word not in ("2>&1",)]
    assert " ".join(found).endswith(words)


@pytest.mark.parametrize("script", ["x.py --a 'b", 'x.py --a "b', "A=(--tp 8"])
def test_what_is_not_closed_is_refused(script: str) -> None:
    """Quotes and arrays without an end."""
    with pytest.raises(DataError, match="No closing"):
        command_words(script)


@pytest.mark.parametrize("script", ["$" * 5000, "${" * 3000, "(" * 3000, "A=$A$A\n" * 500, "x " * 30000])
def test_odd_texts_end(script: str) -> None:
    """Texts that are no scripts give words or one line."""
    try:
        assert isinstance(command_words(script), list)
    except DataError as error:
        assert "\n" not in str(error)
