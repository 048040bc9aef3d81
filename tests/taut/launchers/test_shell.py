"""Words of start scripts with their variables in place, by hand."""

import random
import re
import shutil
import subprocess

import pytest

from taut.errors import DataError
from taut.launchers.shell import read_command

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
    "a case": ("M=b\ncase $M in\na|c) T=1;;\n'b')\n  T=2\n;;\n*) T=3;;\nesac\nx.py --tp $T", "--tp 2"),
    "the other case": ("case x in a) T=1;; *) T=3; esac\nx.py --tp $T", "--tp 3"),
    "and, or": ("A=1\n[ $A = 2 ] && T=1\n[ $A = 2 ] || T=4\n[[ $A == 1 && 2 -gt 3 ]] && T=5\nx.py --tp $T", "--tp 4"),
    "several conditions": ("A=1\nif [ $A = 1 ] && [ 2 = 3 ]; then T=1; else T=2; fi\nx.py --tp $T", "--tp 2"),
    "a function": ('f() {\n local T=$1\n x.py --tp $T "${@}"\n}\nT=9\nf 4 --pp 2', "--tp 4 4 --pp 2"),
    "a function that is not called": ("f() { T=1; }\nT=2\nx.py --tp $T", "--tp 2"),
    "a loop": ("T=1\nfor x in 1 2 3; do T=$((T * 2)); done\nx.py --tp $T", "--tp 8"),
    "a loop that counts": ("T=1\nwhile [ $T -lt 5 ]; do T=$((T + 3)); done\nx.py --tp $T", "--tp 7"),
    "a loop that is left": ("T=1\nfor x in 4 6; do\nif [ $x = 6 ]; then break; fi; T=$x; done\nx.py --tp $T", "--tp 4"),
    "arguments": ("T=4\nwhile [[ $# -gt 0 ]]; do\ncase $1 in --tp) T=$2; shift;; esac; done\nx.py --tp $T", "--tp 4"),
    "what is redirected": ("(x.py --tp 8 --sp) > a.log 2>&1 < b", "--tp 8 --sp"),
    "an empty environment": ('if [ -z "$T" ]; then T=4; fi\nif [ $U != 1 ]; then T=${T}8; fi\nx.py --tp $T', "--tp 48"),
    "a loop of unknown length": (
        "T=2\nfor ((i=0;i<3;i++)); do T=$((T*2)); U=4; done\nx.py --tp $T --pp $U",
        "--tp $T --pp 4",
    ),
    "a text that is run": ("T=2\neval 'T=8'\nx.py --tp $T", "--tp $T"),
    "sums in place": ("T=4\n((T = T * 2))\nx.py --tp $T", "--tp $T"),
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
    found = [word for word in read_command(script).words if word not in ("2>&1",)]
    assert " ".join(found).endswith(words)


@pytest.mark.parametrize("script", ["x.py --a 'b", 'x.py --a "b', "A=(--tp 8"])
def test_what_is_not_closed_is_refused(script: str) -> None:
    """Quotes and arrays without an end."""
    with pytest.raises(DataError, match="No closing"):
        read_command(script)


@pytest.mark.parametrize("script", ["$" * 5000, "${" * 3000, "(" * 3000, "A=$A$A\n" * 500, "x " * 30000])
def test_odd_texts_end(script: str) -> None:
    """Texts that are no scripts give words or one line."""
    try:
        assert isinstance(read_command(script).words, list)
    except DataError as error:
        assert "\n" not in str(error)


LINES = """A={x}|B=$(({x} + {y}))|C={x}|A=$B|B=${C:-{x}}|[ {x} -gt {y} ] && C={x}|[ {x} = {y} ] || A={y}|D={x}
(( {x} < {y} )) && B=7|[[ {x} == {y} || {y} -lt 3 ]] && A=2|f {x}|g {x} {y}|C=${D:-4}${D:+{x}}
! [ {x} -eq {y} ] && B={y}|[[ -z $D && -n $A ]] && C=6|[ {x} -le 2 -o {y} -ge 4 ] && A=5|true && C={x}|E+=(--cp {x})"""
BLOCKS = """if [ {x} -gt {y} ]; then inner; fi
if [[ {x} == {y} ]]; then inner; elif [ {x} -lt 3 ] && [ {y} != 2 ]; then more; else inner; fi
case {x} in 1|2) inner;; 3*) more;; [5-7]) inner;; *) inner; more;; esac
for z in {x} {y} 4; do A=$z; inner; done
for z in 1 2 3; do [ $z -gt {y} ] && break; inner; done
for z in 1 2 3; do if [ $z = 2 ]; then continue; fi; inner; done
N=0; while [ $N -lt 3 ]; do N=$((N + 1)); inner; done
[ {x} -ge {y} ] && { inner; more; }
if ! [ {x} = {y} ]; then inner; else more; fi"""


def write(seed: int) -> str:
    """A random script, which states what its variables are at its end."""
    draw = random.Random(seed)

    def number() -> str:
        return draw.choice(["1", "2", "3", "5", "$A", "${B}", "$C"])

    def block(depth: int) -> str:
        several = []
        for _ in range(draw.randint(1, 3)):
            nested = depth < 2 and draw.random() < 0.4
            line = draw.choice(BLOCKS.split("\n")) if nested else draw.choice(re.split(r"\n|(?<!\|)\|(?!\|)", LINES))
            line = line.replace("{x}", number()).replace("{y}", number())
            several.append(
                line.replace("inner", block(depth + 1)).replace("more", block(depth + 1)) if nested else line
            )
        return "; ".join(several)

    functions = "f() { C=$1; [ $1 -gt 2 ] && return; A=$1; }\ng() {\n  local K=$2\n  B=$K; f $1\n}\n"
    body = "\n".join(block(0) for _ in range(3))
    return f'A=1; B=2; C=3; E=()\n{functions}{body}\nx.py --a $A --b $B --c $C "${{E[@]}}"\n'


@pytest.mark.skipif(shutil.which("bash") is None, reason="no shell to compare with")
def test_scripts_say_what_the_shell_makes_of_them() -> None:
    """Words of random scripts are those that the shell gives the command."""
    scripts = [write(seed) for seed in range(120)]
    runs = "\n".join(f"( {script.replace('x.py', 'echo')} )" for script in scripts)
    said = subprocess.run(["bash"], input=runs, capture_output=True, text=True, timeout=60, check=False).stdout
    for script, line in zip(scripts, said.splitlines(), strict=True):
        found = read_command(script)
        assert " ".join(found.words[1:]) == line or found.undecided, script
