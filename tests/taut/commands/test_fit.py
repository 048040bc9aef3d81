"""``taut fit``: calibrations and memory models from CSV files, and what is refused."""

from pathlib import Path

import pytest
import yaml

from taut.data.load import load_memory_model
from taut.data.samples import read_samples
from taut.prediction.rows import predict_rows
from tests.taut.conftest import Run

HEAD = "gpu,n_gpus,hidden,layers,heads,seq,tp,pp,dp,micro_batch,global_batch,recompute,zero,precision,stack"


def rows(column: str) -> list[str]:
    """Forty configurations with what an analytic model, a tenth larger, says of them."""
    lines = []
    for tp in (1, 2, 4, 8):
        for pp in (1, 2):
            for batch in (1, 2, 4, 8, 16):
                dp = 16 // tp // pp
                lines.append(f"A100,16,2048,24,16,2048,{tp},{pp},{dp},{batch},{dp * batch * 4},full,1,bf16,mine")
    return [HEAD + "," + column, *lines]


def measured(path: Path, column: str) -> Path:
    """The rows with a figure of our own: the prediction plus a tenth."""
    plain = path.with_name("plain.csv")
    plain.write_text("\n".join(line.removesuffix(",mine") for line in rows(column)[0:1]) + "\n")
    text = rows(column)
    stack = "any" if column == "measured_bytes" else ""
    plain.write_text("\n".join([HEAD, *(line.replace(",mine", f",{stack}") for line in text[1:])]) + "\n")
    found = predict_rows([line.row for line in read_samples(plain) if line.row is not None])
    values = [1.1 * (one.memory_bytes or 0) if column == "measured_bytes" else one.step_time_s for one in found]
    path.write_text("\n".join([text[0], *(f"{line},{value}" for line, value in zip(text[1:], values, strict=True))]))
    return path


@pytest.mark.filterwarnings("always::taut.errors.ExtrapolationWarning")
def test_memory_is_fitted_and_used(run: Run, tmp_path: Path) -> None:
    """A model fitted on figures a tenth above the analytic ones predicts them; a plan says what is beyond them."""
    out = tmp_path / "mine.yaml"
    done = run("fit", "memory", str(measured(tmp_path / "m.csv", "measured_bytes")), "--out", str(out))
    assert done.code == 0, done.err
    assert "40 samples" in done.out
    model = load_memory_model(str(out))
    assert (model.stack, model.device, model.samples, model.level) == ("mine", "a100-80gb", 40, 0.05)
    assert model.mape is not None and model.mape < 0.02
    assert model.margin == 0.0
    planned = run(
        "plan", "gpt-1.1b", "dgx-a100", "--global-batch", "16", "--memory-model", str(out), "--quiet", "--fix", "tp=4"
    )
    assert planned.code == 0, planned.err
    words = " ".join(planned.out.split())
    assert "model mine" in words and "fitted on 40 runs" in words
    # Eight devices, where every sample had sixteen.
    assert "mine: asked beyond the runs it was fitted on: n_gpus (samples: 16 to 16)" in planned.err


def test_latency_is_fitted(run: Run, tmp_path: Path) -> None:
    """The file says which stack it speaks for and how far it is off on unseen runs."""
    out = tmp_path / "c.yaml"
    done = run("fit", "latency", str(measured(tmp_path / "m.csv", "measured_s")), "--out", str(out))
    assert done.code == 0, done.err
    values = yaml.safe_load(out.read_text())
    assert (values["stack"], values["samples"]) == ("mine", 40)
    assert values["mape"] < 0.05


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (
            f"{HEAD},measured_bytes\nA100,16,2048,24,16,2048,4,1,4,1,16,full,1,bf16,mine,\n",
            (),
            "measured_bytes: missing",
        ),
        (f"{HEAD}\nA100,16,2048,24,16,2048,4,1,4,1,16,full,1,bf16,mine\n", (), "measured_bytes: missing"),
        (f"{HEAD},measured_bytes\nA100,9,2048,24,16,2048,4,1,4,1,16,full,1,bf16,mine,1e9\n", (), "n_gpus is 9"),
        (f"{HEAD},measured_bytes\n", ("--level", "2"), "--level 2: expected a chance between 0 and 1"),
    ],
)
def test_wrong_samples_are_refused(run: Run, tmp_path: Path, text: str, options: tuple[str, ...], words: str) -> None:
    """One line, exit code 2, and nothing written."""
    path, out = tmp_path / "m.csv", tmp_path / "out.yaml"
    path.write_text(text)
    done = run("fit", "memory", str(path), "--out", str(out), *options)
    assert done.code == 2
    assert words in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not out.exists()
