# SPDX-License-Identifier: Apache-2.0
"""cgp.bench as far as it goes without a GPU: arguments, statistics, tables, JSON and plots of recorded rows."""
import json
import math
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from cgp.bench import _report, _stats
from cgp.bench.__main__ import arguments, missing, why_not

ROWS = [
    dict(part="operators", name="softmax 8192 x 4096", own=["cgp"],
         times={"cgp": _stats.summary([0.040, 0.041, 0.042]), "eager": _stats.summary([0.080, 0.082, 0.084]),
                "torch.compile": {"error": "RuntimeError: <no>"}}),
    dict(part="operators", name="argmax & others", own=["cgp"],
         times={"cgp": _stats.summary([2.0, 2.0]), "eager": _stats.summary([1.0, 1.0])}),
    dict(part="train", name="loss of a small model", own=[], times={}, note="last losses 1.5 and 1.5"),
]


def test_statistics():
    s = _stats.summary([4.0, 1.0, 3.0, 2.0])
    assert s == {"ms": 2.5, "spread": 0.75 / 2.5, "rounds": 4}
    assert _stats.quantile([5.0], 0.75) == 5.0
    assert _stats.ratio(ROWS[0], "cgp") == 2.0 and _stats.ratio(ROWS[1], "cgp") == 0.5
    assert _stats.ratio(dict(own=["cgp"], times={"cgp": {"ms": 1.0}}), "cgp") is None
    assert math.isclose(_stats.geometric_mean([2.0, 0.5, None]), 1.0) and _stats.geometric_mean([None]) is None


def test_table_names_what_was_measured_and_what_could_not_be():
    text = _report.table(ROWS)
    lines = text.splitlines()
    assert lines[0] == "operators" and "best peer / cgp" in lines[1]
    assert "41.0 us ±1%" in lines[2] and lines[2].endswith("2.00") and lines[3].endswith("0.50")
    assert lines[4].split()[:2] == ["geometric", "mean"] and lines[4].endswith("1.00")
    assert "softmax 8192 x 4096: torch.compile: RuntimeError: <no>" in text and "last losses" in text
    assert len({len(line) for line in lines[1:5]}) == 1


def test_ours_is_the_fastest_of_ours():
    row = dict(own=["a", "b"], times={"a": {"ms": 2.0, "spread": 0}, "b": {"ms": 1.0, "spread": 0}, "c": {"ms": 3.0, "spread": 0}})
    assert _report.ours_of(row) == "b" and _stats.ratio(row, "b") == 3.0


def test_json_and_plots():
    again = json.loads(_report.as_json(ROWS, {"device": "none"}))
    assert again["rows"] == ROWS and again["about"] == {"device": "none"}
    text = _report.svg(ROWS, "operators <1>")
    tree = xml.etree.ElementTree.fromstring(text)  # well formed, although names have < and &
    bars = [e for e in tree.iter() if e.tag.endswith("rect") and e.find("{http://www.w3.org/2000/svg}title") is not None]
    assert len(bars) == 4  # one a measured contender
    widths = [float(b.get("width")) for b in bars]
    assert widths[1] == max(widths) and math.isclose(widths[0], widths[1] / 2, rel_tol=1e-3)
    assert "href" not in text and "url(" not in text


def test_arguments():
    o = arguments([])
    assert o.parts == ["operators", "optimizers", "adapters", "generate", "train"] and o.prompts == [32, 128, 512] and o.compile and o.models[0] == "gpt2"
    o = arguments(["generate", "--prompts", "8,16", "--no-compile", "--models", "llama1b", "--layers", "2", "--only", "a, b"])
    assert o.parts == ["generate"] and o.prompts == [8, 16] and not o.compile and o.layers == 2 and o.only == ["a", "b"]


@pytest.mark.parametrize("given, says", [(["sing"], "no part 'sing'"), (["--models", "bert"], "no model 'bert'"),
                                         (["--prompts", "x"], "no list of numbers"), (["--rounds", "0"], "--rounds"),
                                         (["--prompts", "0"], "--prompts")])
def test_wrong_arguments(given, says, capsys):
    with pytest.raises(SystemExit):
        arguments(given)
    assert says in capsys.readouterr().err


def test_peers_that_are_not_there_are_named():
    assert missing(("json", "no_such_peer", "nor_this")) == "not installed, so left out: no_such_peer, nor_this"
    assert missing(("json",)) == ""


def test_without_a_gpu_it_says_so():
    why = why_not(["operators"])
    if not why:
        pytest.skip("there is a GPU")
    done = subprocess.run([sys.executable, "-m", "cgp.bench", "operators"], capture_output=True, text=True)
    assert done.returncode == 2 and why in done.stderr and done.stderr.startswith("cgp.bench: ")
