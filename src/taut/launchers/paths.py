"""
Settings by path, as Megatron-Bridge, NeMo, FlagScale and frameworks over them state them, as Megatron-LM's flags.

``model.tensor_model_parallel_size: 4`` in YAML, ``model.tensor_model_parallel_size=4`` on a command line and
``cfg.model.tensor_model_parallel_size = 4`` in a recipe say the same. The last name of a path counts. It is
Megatron-LM's own with underscores, or one of ``ALIASES``. A path may begin with the part that trains
(``actor_rollout_ref.actor``); parts that only generate are passed over.

Sources: Megatron-Bridge, src/megatron/bridge/training/config.py; NeMo, examples/nlp/language_modeling/conf, and
nemo/lightning/pytorch/strategies/megatron_strategy.py; FlagScale, examples; verl, trainer/config/actor.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from taut.errors import DataError
from taut.exports.architecture import CHUNKS, LAYOUT, Flags, count, layers_of
from taut.launchers.megatron import READ, SHAPE, SWITCHES, TRUTHS
from taut.launchers.settings import DECIDING, known

ALIASES: dict[str, str] = known("names_of_flags")
VIRTUAL = "virtual_pipeline_model_parallel_size"
SHARDED = {"mcore_distributed_optim", "distributed_fused_adam"}
"""NeMo's optimizers whose states are sharded."""
KNOWN = re.compile(
    r"(tensor_model|pipeline_model|expert_model|expert_tensor|context)_parallel_size$|^micro_batch_size$"
)
GENERATES = re.compile(
    r"(^|\.)(rollout|ref|critic|reward|reward_model|teacher|draft|generation|inference|eval|validation|vllm)(\.|$)"
)
"""Parts of a configuration that do not train."""
SILENT_PARTS = re.compile(rf"(^|\.)({'|'.join(known('parts'))})\.")
OTHER_PARTS = re.compile(rf"(^|\.)({'|'.join(known('other_parts'))})\.")


FIRST = re.compile(r"(^|\.)(mixed_precision|plugins)\.")
"""A part that holds whatever another part says of the same (Megatron-Bridge and NeMo set it last)."""
OPEN = ("None", "null", "~")
"""Values that leave a setting to the launcher, or to another part of the configuration."""
OFF = re.compile(r"\.enabled?$")
"""What turns a section off."""
REFERENCE = re.compile(r"\$\{(?:oc\.(?:decode|env):)?([\w.]+)(?:[:,]([^${}]+))?\}")
"""A reference to another setting, or to a variable of the environment with what is taken without it."""


def overrides_of(words: list[str]) -> dict[str, Any]:
    """Settings by path of words such as ``model.tensor_model_parallel_size=4`` or ``+model.sequence_parallel=true``."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and not name.startswith("-") and re.fullmatch(r"\+{0,2}[A-Za-z_][\w.]*", name):
            found[name.lstrip("+")] = _plain(value)
    return found


def _plain(text: str) -> Any:
    """A value of a command line without its quotes; a list if it stands in brackets."""
    text = text.strip("'\"")
    if text.startswith("[") and text.endswith("]"):
        return [part.strip(" '\"") for part in text[1:-1].split(",") if part.strip()]
    return text


def flat_settings(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """
    Settings of a nested mapping by path, without sections that are not enabled.

    A reference such as ``${model.mbs}`` is replaced by the value there.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{before}{name}"
        found |= flat_settings(value, f"{path}.") if isinstance(value, dict) else {path: value}
    if not before:
        off = [path.rpartition(".")[0] + "." for path, value in found.items() if OFF.search(path) and value is False]
        found = {path: value for path, value in found.items() if not path.startswith(tuple(off))}
        for path, value in found.items():
            match = REFERENCE.fullmatch(value) if isinstance(value, str) else None
            found[path] = _default(match[2]) if match and match[2] else found.get(match[1], value) if match else value
    return found


def _default(text: str) -> Any:
    """A value that stands behind a variable; texts of truths and of nothing as such."""
    text = text.strip().strip("'\"")
    return {"true": True, "false": False, "null": None, "none": None}.get(text.lower(), text)


def is_megatron(settings: Mapping[str, Any]) -> bool:
    """Whether settings by path are Megatron-LM's, or those of a framework that builds on it."""
    return any(KNOWN.search(_name(path)) and not GENERATES.search(path) for path in settings)


def _name(path: str) -> str:
    """The last name of a path, as a field where it stands as a flag."""
    return path.rpartition(".")[2].lstrip("-").replace("-", "_")


def flags_of_settings(settings: Mapping[str, Any]) -> tuple[Flags, set[str]]:
    """Megatron-LM's flags that settings by path turn on or give a value, and all flags that they mention, on or off."""
    flags: Flags = {}
    paths: dict[str, str] = {}
    mentioned: set[str] = set()
    for path, value in settings.items():
        if GENERATES.search(path):
            continue
        name = _name(path)
        flag = ALIASES.get(name) or "--" + name.replace("_", "-")
        if name == "ppo_mini_batch_size":
            value = _sequences(value, settings)
        if re.search(r"(^|\.)(peft|lora)\.enabled?$", path):
            flag, value = "--peft", "lora" if value else None
        if name in ("mixed_precision", "precision") and value is not None:
            flags |= _formats(str(value))
            continue
        if name == "name" and value in SHARDED:
            flag, value = "--use-distributed-optimizer", True
        if name in ("devices", "num_nodes") and not str(value).isdecimal():
            continue
        if name == "grad_reduce_in_fp32" and value is not None:
            flag, value = "--grad-reduce-in-bf16", not TRUTHS.get(str(value).lower(), True)
        if FIRST.search(paths.get(flag, "")) and not FIRST.search(path):
            continue
        silent, stated = _is_silent(path, flag), dict(_stated(flag, value))
        mentioned |= set() if silent else {flag}
        if str(value) in OPEN:
            continue
        differs = flag in paths and flags.get(flag, "absent") != stated.get(flag, "absent")
        if differs and (flag in READ or flag in SHAPE) and not FIRST.search(path):
            raise DataError(f"{path} {value}: {paths[flag]} states {flags.get(flag, 'none')}, expected one value")
        if silent:
            continue
        paths[flag] = path
        flags.pop(flag, None)
        flags |= stated
    _check_chunks(flags, paths)
    return flags, mentioned


def _check_chunks(flags: Flags, paths: Mapping[str, str]) -> None:
    """Leave out a number of chunks that the layout has, which goes with it here, though not among flags."""
    if not (layout := flags.get(LAYOUT)) or CHUNKS not in flags or not paths[CHUNKS].endswith(VIRTUAL):
        return
    chunks, stages = len(layers_of(layout)), count(flags, "--pipeline-model-parallel-size")
    vpp = count(flags, CHUNKS)
    if chunks != vpp * stages:
        raise DataError(f"{paths[CHUNKS]} {vpp}: {layout} has {chunks} chunks over {stages} stages, expected as many")
    del flags[CHUNKS]


def _sequences(prompts: Any, settings: Mapping[str, Any]) -> Any:
    """The batch of verl's update: prompts times the answers to each (verl/workers/config/actor.py)."""
    answers = next((value for path, value in settings.items() if path.endswith("rollout.n")), 1)
    both = str(prompts).isdecimal() and str(answers).isdecimal()
    return int(prompts) * int(answers) if both else prompts


def _formats(text: str) -> Flags:
    """Flags of a precision in a word, as Lightning and Megatron-Bridge name it."""
    words = text.lower()
    if "fp4" in words:
        return {"--fp4-format": "e2m1"}
    if "fp8" in words:
        recipes = {"mx": "mxfp8", r"_sc(?![a-z])|subchannel|block": "blockwise"}
        recipe = next((recipe for word, recipe in recipes.items() if re.search(word, words)), "tensorwise")
        return {"--fp8-format": "hybrid", "--fp8-recipe": recipe}
    if "bf16" in words or "bfloat16" in words:
        return {}
    return {"--fp16": None} if "16" in words else {"--precision": text}


def _is_silent(path: str, flag: str) -> bool:
    """Whether a setting is passed over: its part of the configuration decides no price, and its flag is not read."""
    other = OTHER_PARTS.search(path) is not None and not DECIDING.search(_name(path))
    return flag not in READ and (other or SILENT_PARTS.search(path) is not None)


def _stated(flag: str, value: Any) -> Iterator[tuple[str, str | None]]:
    """A flag with its value; nothing where the flag is off or left to the launcher."""
    text = str(value)
    if text in OPEN:
        return
    if flag == LAYOUT and isinstance(value, list):
        yield flag, _layout(value)
    elif flag in SWITCHES or isinstance(value, bool) or text.lower() in ("true", "false"):
        if TRUTHS.get(text.lower(), True):
            yield flag, None
    elif isinstance(value, list):
        if value:
            yield flag, " ".join(map(str, value))
    else:
        yield flag, text


def _layout(parts: list[Any]) -> str:
    """Megatron-LM's layout in letters, from lists of names, one list for each chunk."""
    letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
    chunks = [part if isinstance(part, list) else [part] for part in parts]
    return "|".join("".join(letters.get(str(name), str(name)) for name in chunk) for chunk in chunks)
