"""Settings of Python files, followed without running them: by hand, forms of public recipes, and what is not known."""

from pathlib import Path
from typing import Any

import pytest

from taut.errors import DataError
from taut.launchers.read import launch_of_file
from taut.launchers.recipes import module_fields
from taut.launchers.settings import Launch, Run

TITAN = """
TOKENS = 8192

def base():
    return Trainer.Config(
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=2 * TOKENS, max_context_length=TOKENS),
        parallelism=ParallelismConfig(tensor_parallel_degree=2),
        activation_checkpoint=FullAC.Config(),
        optimizer=default_adamw(lr=1e-4),
    )

def large():
    config = base()
    config.parallelism.tensor_parallel_degree *= 2
    config.parallelism.tensor_parallel_degree = 8
    config.activation_checkpoint = SelectiveAC.Config()
    config.model_spec = model_registry("8B", converters=[Float8LinearConverter.Config()])
    return config
"""
BRIDGE = """
from bridge.common import base

def _degrees(cfg, tp, *, pp=1, **more):
    cfg.model.tensor_model_parallel_size = tp
    cfg.model.pipeline_model_parallel_size = pp
    cfg.train.micro_batch_size = more["micro_batch"] if more else 1
    if tp > 1:
        cfg.model.sequence_parallel = True
    else:
        cfg.model.sequence_parallel = False

def pretrain():
    cfg = base()
    cfg.mixed_precision = precision("fp8_mx")
    cfg.mixed_precision.grad_reduce_in_fp32 = False
    _degrees(cfg, 4, micro_batch=2)
    cfg.model.context_parallel_size = degree()
    if os.environ["X"]:
        cfg.model.pipeline_model_parallel_size = 8
    tune(cfg)
    return cfg
"""
COMMON = """
def base():
    cfg = ConfigContainer(ddp=DDP(use_distributed_optimizer=True), train=Train(global_batch_size=64))
    cfg.ddp.grad_reduce_in_fp32 = True
    return cfg
"""
NEMO = """
def trainer(tensor: int = 4, nodes: int = 2) -> run.Config:
    strategy = run.Config(nl.MegatronStrategy, tensor_model_parallel_size=tensor, pipeline_model_parallel_size=nodes)
    return run.Config(nl.Trainer, strategy=strategy, plugins=bf16_mixed())

def recipe(scheme: str = "none", batch: int = 128):
    made = run.Partial(pretrain, trainer=trainer(nodes=1), data=run.Config(Data, global_batch_size=batch))
    if scheme is None or scheme.lower() == "none":
        made.trainer.strategy.sequence_parallel = True
    elif scheme.lower() in ["lora"]:
        made.peft = run.Config(PEFT[scheme])
    return made
"""


def read(folder: Path, text: str, function: str = "") -> Launch:
    """What a file with this text, or one function of it, says on eight devices."""
    (folder / "recipe.py").write_text(text)
    return launch_of_file(folder / (f"recipe.py:{function}" if function else "recipe.py"), Run(None, 8))


def test_a_function_of_torchtitan(tmp_path: Path) -> None:
    """``large`` changes what ``base`` returns; 16,384 tokens at once are two sequences."""
    base, large = read(tmp_path, TITAN, "base"), read(tmp_path, TITAN, "large")
    assert base.values.items() >= {"tp": 2, "micro_batch": 2, "recompute": "full"}.items()
    assert large.values.items() >= {"tp": 8, "micro_batch": 2, "recompute": "selective"}.items()
    assert base.options == large.options == {"seq": 8192}
    assert base.named == ("what these may set is not read: line 9 default_adamw(lr=0.0001)",)
    assert "not priced: Float8LinearConverter" in large.named


def test_several_configurations_are_asked_for_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"recipe.py: Python file: makes 2 configurations \(base, large\), .*:base"):
        read(tmp_path, TITAN)
    with pytest.raises(DataError, match="larg: no function of the file, expected large"):
        read(tmp_path, TITAN, "larg")


def test_functions_of_files_beside(tmp_path: Path) -> None:
    """Arguments, conditions and imports are followed; what is not known is named."""
    (tmp_path / "bridge").mkdir()
    (tmp_path / "bridge" / "common.py").write_text(COMMON)
    found = read(tmp_path, BRIDGE)
    values = {"tp": 4, "cp": 1, "micro_batch": 2, "global_batch": 64, "zero": 1, "sequence_parallel": True}
    assert found.values.items() >= values.items()
    assert found.options == {"precision": "mxfp8", "grad_precision": "bf16"}
    assert found.named[-3:] == (
        "what these may set is not read: line 21 tune(cfg); line 18 degree(); line 15 precision('fp8_mx')",
        "model.pipeline_model_parallel_size: 8, behind a condition, which is not known, is not read",
        "model.context_parallel_size: degree(), which is not known, is not read",
    )


def test_functions_that_are_not_found_are_named(tmp_path: Path) -> None:
    (changes,) = (each for each in read(tmp_path, BRIDGE).named if "may set" in each)
    assert "line 14 base(); line 21 tune(cfg)" in changes


def test_defaults_of_parameters(tmp_path: Path) -> None:
    """NeMo's recipes state degrees as defaults of their parameters."""
    found = read(tmp_path, NEMO, "recipe")
    assert found.values.items() >= {"tp": 4, "pp": 1, "global_batch": 128, "sequence_parallel": True}.items()
    with pytest.raises(DataError, match=r"--peft .*training of a part of the weights"):
        read(tmp_path, NEMO.replace('"none",', '"lora",'), "recipe")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f():\n    return f()\n", "line 2 f.*more than 20 calls in one another"),
        ("cfg.model.micro_batch_size = 9 ** 9 ** 9\n", "expected one configuration"),
        ("x = [" * 3000, "expected one configuration"),
        ("while True:\n    pass\n", "more than 400000 steps"),
    ],
)
def test_files_that_do_not_end(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("value", "read_as"), [("2 * 4", 8), ("16 // 4", 4), ("A['b']", 4), ("3 if 1 < 2 else 4", 3), ("-(-2)", 2)]
)
def test_values(tmp_path: Path, value: str, read_as: Any) -> None:
    text = f"A = {{'b': 4}}\ncfg = make()\ncfg.model.tensor_model_parallel_size = {value}\n"
    assert read(tmp_path, text).values["tp"] == read_as


@pytest.mark.parametrize(
    ("lines", "known"),
    [
        ("TP = size or 4", None),
        ("TP = None or 4", 4),
        (
            "TP = 1\n    while size:\n        TP *= 2",
            None,
        ),
        ("tp = 1\n    tp, pp = 2, 4\n    TP = tp", 2),
        ("TP = max(4, 2)", 4),
        ("other = deepcopy(cfg)\n    other.model.tensor_model_parallel_size = 8", 1),
        ("if __name__ != '__main__':\n        TP = 8", 8),
        ("if size:\n        tune(cfg)", 1),
    ],
    ids=["or", "none-or", "loop", "tuple", "builtin", "copy", "name", "call"],
)
def test_what_is_not_known_is_not_taken_as_known(lines: str, known: int | None) -> None:
    """Values of unknown arguments, of loops and of calls are named; a copy is one of its parts as well."""
    text = f"""
def recipe(size):
    cfg = ConfigContainer(model=Model(tensor_model_parallel_size=1), train=TrainingConfig(micro_batch_size=1))
    {lines.replace("TP", "cfg.model.tensor_model_parallel_size")}
    return cfg
"""
    found = module_fields(text)
    assert found.fields.get("model.tensor_model_parallel_size") == known, found
    assert bool(found.named) == (known is None or "tune" in lines), found


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ("tune(cfg=cfg)", "line 9 tune"),
        ("utils.tune(cfg)", "line 9 utils.tune"),
        ("cfg.finalize()", "line 9 cfg.finalize"),
        ("setattr(cfg.model, 'tensor_' + 'model_parallel_size', 8)", 8),
        ("setattr(cfg.model, name, 8)", "line 9 setattr"),
        ("cfg.model.update(tensor_model_parallel_size=8)", "line 9 cfg.model.update"),
        ("with suppress(KeyError):\n        TP = 8", "TP: 8, behind"),
        ("match size:\n        case 1:\n            TP = 8", "TP: 8, behind"),
        ("try:\n        TP = D['x']\n    except KeyError:\n        TP = 8", "TP: "),
        ("for _ in size:\n        other = cfg.model\n        other.tensor_model_parallel_size = 8", "line 11 other"),
        ("if size:\n        return None", "refused"),
        ("async def f(): pass", 1),
        ("del cfg.model", "refused"),
        ("D = {}; D.update({'a': 8}); TP = D['a']", 8),
        ("L = [1]; unseen(L); TP = L[0]", "TP: L[0]"),
        ("m = cfg.model; cfg = deepcopy(cfg); m.tensor_model_parallel_size = 8", 1),
        ("m = cfg.model if size else cfg.other; m.tensor_model_parallel_size = 8", "line 9 m.tensor"),
        ("cfg.model = unseen()", "line 9 unseen()"),
        ("L = [0] * 1000000000", "refused"),
        ("L = 'a' * 9999 * 9999", "refused"),
        ("L = list(range(1000000000))", "refused"),
        ("TP = 9 ** 9 ** 9", "TP: 9 ** 9 ** 9"),
        ("TP = Own(3).tp", "TP: Own(3).tp"),
        ("exec('cfg.model = 1')", "refused"),
        ("[tune(cfg) for x in (1,)]", "line 9 tune"),
        ("f = lambda: tune(cfg)\n    f()", "line 9 tune"),
        ("assert size and tune(cfg)", "line 9 tune"),
        ("argparse.ArgumentParser().parse_args(namespace=cfg)", "line 9 argparse"),
        ("cfg = _cached()", "@functools.cache"),
        ("cfg.model.__dict__.update(tensor_model_parallel_size=8)", "line 9 cfg.model.__dict__"),
        ("object.__setattr__(cfg.model, 'tensor_model_parallel_size', 8)", "line 9 object"),
        ("TP = len({1, 1})", "TP: len({1, 1})"),
        ("TP = 4 if 2 in {1, 2} else 8", 4),
        ("L = [1]; M = L\n    if size: L += [2]\n    TP = len(M)", "TP: len(M)"),
        ("t = 1\n    def up():\n        nonlocal t\n        t = 8\n    up(); TP = t", "TP: t"),
        ("for i, t in enumerate([4], start=2): TP = i * t", 8),
        ("max = min; TP = max(4, 2)", "TP: max(4, 2)"),
        ("class A:\n        for t in range(9): TP = t", 8),
        ("class A:\n        def go(self, t=setattr(cfg.model, 'tensor_model_parallel_size', 8)): ...", 8),
        ("class A(tune(cfg)):\n        del size", "refused"),
        ("def also(f):\n        TP = 8\n        return f\n    @also\n    def more(): ...", "line 12 also"),
        ("t = 1\n    class A:\n        def go(self):\n            nonlocal t\n            t = 8", "refused"),
        ("t = 1\n    def go():\n        nonlocal t\n        t = yield 8\n    TP = list(go())[0] + t", "refused"),
    ],
)
def test_what_changes_a_configuration_is_followed_or_named(tmp_path: Path, lines: str, named: Any) -> None:
    """Values that are known are Python's; what may have set others is named by its line."""
    text = f"""
import argparse, functools
class Own: tp = 4
@functools.cache
def _cached(): return ConfigContainer(model=Model(tensor_model_parallel_size=1))
def recipe(size, name):
    cfg = ConfigContainer(model=Model(tensor_model_parallel_size=1), train=TrainingConfig(micro_batch_size=1))
    D = {{}}
    {lines.replace("TP", "cfg.model.tensor_model_parallel_size")}
    return cfg
"""
    if named == "refused":
        with pytest.raises(DataError, match=r"recipe.py: Python file: line \d"):
            read(tmp_path, text)
        return
    found = read(tmp_path, text)
    if isinstance(named, int):
        assert (found.values["tp"], found.named) == (named, ())
    else:
        assert any(named.replace("TP", "model.tensor_model_parallel_size") in each for each in found.named), found


def test_sections_and_constants_are_no_configurations(tmp_path: Path) -> None:
    """What a function makes is named where it decides a price; dictionaries at the top are its constants."""
    found = read(tmp_path, TITAN.replace("FullAC.Config()", "unread()"), "base")
    assert "activation_checkpoint: unread(), which is not known, is not read" in found.named
    text = "SETTINGS = {'model.tensor_model_parallel_size': 8}\n"
    assert read(tmp_path, text).values["tp"] == 8
    made = (
        "def f():\n    SETTINGS['model.tensor_model_parallel_size'] = 2\n    cfg = base()\n    cfg.x = dict(SETTINGS)\n"
    )
    assert read(tmp_path, f"{text}{made}    return cfg\n").values["tp"] == 2
