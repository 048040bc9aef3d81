"""
Settings of any known launcher, told apart by what they look like: files by their names, words by their flags.

============================  ======================================================================
what                          is known by
============================  ======================================================================
Megatron-LM's flags           ``--tensor-model-parallel-size`` and its like, with - or _
settings by path              ``model.tensor_model_parallel_size=4``: Megatron-Bridge, NeMo, verl
torchtitan's flags            ``--parallelism.`` or ``--training.``
torchtitan's TOML             a name that ends in ``.toml``
a Python file                 a name that ends in ``.py``: Megatron-Bridge's or torchtitan's settings
DeepSpeed's JSON              a name that ends in ``.json``
YAML                          a name that ends in ``.yaml``: settings by path, nanotron's, trainers'
============================  ======================================================================

Flags and settings by path may stand in a start script, whose variables ``taut.launchers.shell`` puts in place.

Nothing in a Python file is run (``taut.launchers.recipes``); ``recipe.py:function`` names one of its functions.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from taut.data.read import read_json, read_text
from taut.data.read_yaml import read_yaml
from taut.errors import DataError
from taut.exports.architecture import Flags
from taut.launchers.deepspeed import axolotl_launch, deepspeed_launch, nanotron_launch, trainer_launch
from taut.launchers.megatron import flags_of, megatron_launch
from taut.launchers.paths import flags_of_settings, flat_settings, is_megatron, overrides_of
from taut.launchers.recipes import module_fields
from taut.launchers.settings import Launch, Run, known
from taut.launchers.shell import MOST_DEPTH, read_command, unknown_words
from taut.launchers.torchtitan import MODE, is_torchtitan, torchtitan_launch

MOST_BYTES = 10_000_000
"""Bytes beyond which a file is no launcher's settings."""
EXPECTED = "expected --tensor-model-parallel-size 8 and its like"
MEGATRON = re.compile(
    r"--(micro-batch-size|((tensor|pipeline|expert)-)?model-parallel-size|(context|expert-tensor|ds-sequence)-parallel-size)$"
)
SWIFT = {"--use-distributed-optimizer": None, "--recompute-granularity": "selective"}
"""Defaults of ms-swift's commands over Megatron-LM (swift/megatron/arguments)."""


SLIME = {"--actor-num-nodes", "--actor-num-gpus-per-node", "--rollout-num-gpus-per-engine", "--num-steps-per-rollout"}
"""Flags that slime and Miles have besides Megatron-LM's."""
DISPATCHER = "--moe-token-dispatcher-type"
BRIDGES = {"--model-recipe-name", "--model-family-name"}
"""Flags of Megatron-Bridge's scripts of measured recipes (scripts/performance/argument_parser.py)."""
SHORT: dict[str, str] = known("bridge_options")
NAMES: dict[str, str] = known("bridge_names")


def _with_slimes_defaults(flags: Flags) -> Flags:
    """Flags with what slime and Miles set: sharded states but for Muon, bf16, an all-to-all of tokens, the batch."""
    found: Flags = dict(flags) if "--fp16" in flags else {"--bf16": None, **flags}
    if "muon" not in (flags.get("--optimizer") or ""):
        found["--use-distributed-optimizer"] = None
    if "--expert-model-parallel-size" in flags and flags.get(DISPATCHER, "allgather") == "allgather":
        found[DISPATCHER] = "alltoall"
    stated = [
        flags.get(f"--{name}") or "" for name in ("rollout-batch-size", "n-samples-per-prompt", "num-steps-per-rollout")
    ]
    if "--global-batch-size" not in flags and all(text.isdecimal() and int(text) for text in stated):
        prompts, answers, steps = map(int, stated)
        found["--global-batch-size"] = str(prompts * answers // steps)
    return found


def _bridges_launch(words: list[str], run: Run) -> Launch:
    """What a command of Megatron-Bridge's scripts says; the recipe that it names decides the rest."""
    flags = flags_of([f"--{SHORT[word]}" if word in SHORT else word for word in _after_script(words) if word != "\\"])
    names = {flag: flag.lstrip("-").replace("-", "_") for flag in flags}
    settings = {NAMES.get(names[flag], names[flag]): value or value is None for flag, value in flags.items()}
    if settings.get("recompute_num_layers"):
        settings |= {"recompute_granularity": "full", "recompute_method": "block"}
    if modules := settings.get("recompute_modules"):
        settings |= {"recompute_granularity": "selective", "recompute_modules": str(modules).replace(",", " ")}
    read, stated = flags_of_settings({**settings, **overrides_of(words)})
    found = megatron_launch(read, run, stated)
    unsaid = [name for name in SHORT.values() if name.endswith("parallel_size") and name not in settings]
    said = (f"taken as 1, unless the recipe says otherwise: {', '.join(unsaid)}",) if unsaid else ()
    return found._replace(named=(*found.named, *said))


def launch_of_file(path: Path, run: Run | None = None, beside: Mapping[str, Any] | None = None) -> Launch:
    """What a launcher's file says, told apart by its name; ``beside``: degrees stated beside it, as for DeepSpeed's."""
    run, beside = run or Run(), beside or {}
    if path.suffix == ".json":
        config = read_json(path, "DeepSpeed's configuration")
        _check_others(config if isinstance(config, dict) else {})
        return deepspeed_launch(config, str(path), run, beside)
    if path.suffix in (".yaml", ".yml"):
        values, missing = _inherited(read_yaml(path, "a launcher's settings"), path.parent)
        fields = flat_settings(values)
        found = _named_by(path, lambda: _yaml(fields, run))
        said = (f"defaults {', '.join(missing)}: not found, whose settings are not read",) if missing else ()
        return found._replace(named=(*found.named, *said))
    name, _, function = path.name.partition(".py:")
    path = path.with_name(f"{name}.py") if function else path
    text = read_text(path, "a launcher's settings", MOST_BYTES)
    if path.suffix == ".toml":
        return _named_by(path, lambda: _toml(toml_fields(text), run))
    if path.suffix == ".py":
        return _named_by(path, lambda: _module(text, run, function, path.parent))
    return _named_by(path, lambda: launch_of_text(text, run, path.parent))


def _inherited(values: Mapping[str, Any], folder: Path, depth: int = 0) -> tuple[dict[str, Any], list[str]]:
    """Settings over those of the files that ``defaults`` names, and the names of it that are no file beside it."""
    stated = values.get("defaults", [])
    found: dict[str, Any] = {}
    missing: list[str] = []
    for each in stated if isinstance(stated, list) else [stated]:
        path = folder / str(each)
        if isinstance(each, str) and path.suffix in (".yaml", ".yml") and path.is_file() and depth < MOST_DEPTH:
            base, more = _inherited(read_yaml(path, "a launcher's settings"), path.parent, depth + 1)
            found, missing = _merged(found, base), missing + more
        elif each != "_self_":
            missing += [f"{key}/{name}" for key, name in each.items()] if isinstance(each, dict) else [str(each)]
    own = {name: value for name, value in values.items() if name != "defaults"}
    return _merged(found, own), missing


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of ``base`` with those of ``over`` in their place, section by section."""
    nested = {
        name: _merged(base[name], value)
        for name, value in over.items()
        if isinstance(value, dict) and isinstance(base.get(name), dict)
    }
    return {**base, **over, **nested}


def _named_by(path: Path, read: Callable[[], Launch]) -> Launch:
    """What is read from a file; a refusal begins with the file's name."""
    try:
        return read()
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def launch_of_text(text: str, run: Run | None = None, folder: Path | None = None) -> Launch:
    """What a command line or a start script says, which may read other files of its ``folder``."""
    command, run = read_command(text, folder), run or Run()
    found = _launch_of_words(command.words, run)
    said = list(found.named)
    if unknown := unknown_words(command.words):
        said.append(f"the words do not state {', '.join(unknown)}, whose settings are not read")
    if others := sum(_differs(each, run, found, refused=False) for each in command.others):
        said.append(f"the first of {others + 1} commands is read, which differ")
    undecided: dict[str, None] = {}
    for place, condition in enumerate(command.undecided):
        other = read_command(text, folder, place).words
        if condition not in undecided and other != command.words and _differs(other, run, found, refused=True):
            undecided[condition] = None
    if undecided:
        said.append(f"read as without environment and arguments: {'; '.join(undecided)}")
    return found._replace(named=tuple(said))


def _differs(words: list[str], run: Run, found: Launch, *, refused: bool) -> bool:
    """Whether words say something else than what was found; ``refused``: what words count as that are refused."""
    try:
        return _launch_of_words(words, run)[:2] != found[:2]
    except DataError:
        return refused


def _launch_of_words(words: list[str], run: Run) -> Launch:
    """What a command's words say, by the launcher whose flags or settings they hold."""
    if any(word.startswith(("--parallelism.", "--training.")) for word in words):
        return torchtitan_launch(_torchtitan_flags(words), run)
    if (place := _script(words)) >= 0 and "convert" in words[place]:
        raise DataError(f"{words[place]}: converts checkpoints, expected a command that trains")
    flags, settings = flags_of(_after_script(words)), overrides_of(words)
    _check_others({**settings, **{flag.lstrip("-").replace("-", "_"): flags[flag] for flag in flags}})
    if BRIDGES & flags.keys():
        return _bridges_launch(words, run)
    if is_megatron(settings) and not any(MEGATRON.match(flag) for flag in flags):
        flags, stated = flags_of_settings(settings)
        return megatron_launch(flags, run, stated)
    if not any(MEGATRON.match(flag) for flag in flags):
        if "--per-device-train-batch-size" not in flags:
            raise DataError(f"no flag of Megatron-LM or torchtitan, {EXPECTED}")
        return trainer_launch(_fields_of_trainer(words), run)
    if SLIME & flags.keys():
        flags = _with_slimes_defaults(flags)
    if "megatron" in words and {"sft", "pt", "rlhf"} & set(words):
        flags = SWIFT | {"--seq-length" if flag == "--max-length" else flag: flags[flag] for flag in flags}
    return megatron_launch(flags_of(_before_script(words)) | flags, run)


def _fields_of_trainer(words: list[str]) -> dict[str, Any]:
    """Settings of Hugging Face's trainer on a command line; ms-swift trains adapters unless told otherwise."""
    found = {name.lstrip("-").replace("-", "_"): value for name, value in flags_of(words).items()}
    if "swift" in words and not {"tuner_type", "train_type"} & found.keys():
        found["tuner_type"] = "lora"
    return {name: True if value is None else value for name, value in found.items()}


def _script(words: list[str]) -> int:
    """The place of the word that is the script or module, -1 where there is none."""
    for place, word in enumerate(words):
        if word.endswith(".py") or (place and words[place - 1] in ("-m", "--module")):
            return place
    return -1


def _after_script(words: list[str]) -> list[str]:
    """The words of the script itself, or all where none is named."""
    after = words[_script(words) + 1 :]
    return after if any(word.startswith("--") for word in after) else words


def _before_script(words: list[str]) -> list[str]:
    """Words before the script that state the number of processes, as ``torchrun`` has them."""
    own = words[: max(_script(words), 0)]
    kept = re.compile(r"--(nnodes|nproc[-_]per[-_]node)(=|$)")
    return [each for at, word in enumerate(own) if kept.match(word) for each in own[at : at + 2]]


def _torchtitan_flags(words: list[str]) -> dict[str, Any]:
    """Fields of flags such as ``--parallelism.tensor_parallel_degree 8``."""
    modes = [word.partition(":")[2] for word in words if word.startswith("activation_checkpoint:")]
    fields: dict[str, Any] = {MODE: modes[-1]} if modes else {}
    for flag, value in flags_of(words).items():
        section, dot, field = flag[2:].replace("-", "_").partition(".")
        if dot and value is None and field.startswith("no_"):
            fields[f"{section}.{field[3:]}"] = "false"
        elif dot:
            fields[f"{section}.{field}"] = "true" if value is None else value
    return fields


def toml_fields(text: str) -> dict[str, Any]:
    """Fields of a TOML file, by section and name."""
    try:
        sections = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"TOML: {error}, expected sections such as [parallelism]") from None
    return flat_settings({name: values for name, values in sections.items() if isinstance(values, dict)})


def _toml(fields: Mapping[str, Any], run: Run) -> Launch:
    """What sections of a TOML file say, of which some are torchtitan's."""
    if not any(name.startswith(("parallelism.", "training.")) for name in fields):
        raise DataError("TOML without a section of torchtitan, expected [training] and [parallelism]")
    return torchtitan_launch(fields, run)


def _module(text: str, run: Run, function: str, folder: Path) -> Launch:
    """What a Python file says, by the launcher whose fields it has."""
    fields, named = module_fields(text, function, folder)
    if is_megatron(fields):
        flags, stated = flags_of_settings(fields)
        found = megatron_launch(flags, run, stated)
    else:
        found = torchtitan_launch(fields, run)
    return found._replace(named=(*found.named, *named))


def _yaml(fields: Mapping[str, Any], run: Run) -> Launch:
    """What settings by path of a YAML file say, by the launcher whose settings they are."""
    if "tokens.micro_batch_size" in fields or {"parallelism.dp", "parallelism.tp"} <= set(fields):
        return nanotron_launch(fields, run)
    _check_others(fields)
    if "per_device_train_batch_size" in fields:
        return trainer_launch(fields, run)
    if "base_model" in fields or {"dp_shard_size", "gradient_accumulation_steps"} & set(fields):
        return axolotl_launch(fields, run)
    if is_megatron(fields):
        flags, stated = flags_of_settings(fields)
        # Defaults are Megatron-LM's in FlagScale's files; recipes and trainers have defaults of their own.
        is_flagscale = any(path.startswith("system.") for path in fields)
        return megatron_launch(flags, run, None if is_flagscale else stated)
    if is_torchtitan(fields):
        return torchtitan_launch(fields, run)
    raise DataError(f"no setting of a known launcher, {EXPECTED} as tensor_model_parallel_size: 8")


def _check_others(fields: Mapping[str, Any]) -> None:
    """Refuse settings of frameworks that are not read, by name."""
    if any(re.search(r"(^|\.)actor\.megatron\.", path) for path in fields):
        return
    for framework, pattern in known("others").items():
        if path := next(filter(re.compile(pattern).search, fields), None):
            raise DataError(f"{path}: settings of {framework} are not read, {EXPECTED}")
