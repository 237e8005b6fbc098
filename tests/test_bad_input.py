"""Every wrong call ends in an ArcwiseError that names the argument and says what to do."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SAYS = {
    "label too large": r"labels must lie in \[0, 10\); row 2 holds 12\. .* pass classes=13",
    "label negative": r"row 1 holds -1",
    "labels float": r"y must be .*whole-number.*float32.*y\.long\(\)",
    "labels bool": r"y must be .*bool",
    "labels one-hot": r"one label per row of x: shape \(4,\), got \(4, 10\)",
    "labels in a column": r"one label per row of x: shape \(4,\), got \(4, 1\)\. Pass y\.flatten\(\)",
    "labels in a column of floats": r"whole-number.*float32\. Pass y\.flatten\(\)\.long\(\)",
    "labels one-hot in floats": r"whole-number.*float32\. Pass y\.argmax\(1\), if it is one-hot",
    "labels of wrong length": r"shape \(4,\), got \(3,\)",
    "labels a list": r"y must be a tensor .* got list",
    "labels on another device": r"y is on meta, the head on cpu",
    "x of wrong width": r"x must have shape \(batch, 8\), got \(4, 5\)",
    "x of rank 1": r"got \(8,\)",
    "x of rank 4": r"got \(4, 2, 2, 2\)",
    "x whole numbers": r"floating-point embeddings, got torch\.int64\. Pass x\.float\(\)",
    "x complex": r"complex64",
    "x a numpy array": r"got ndarray",
    "x on another device": r"x is on meta",
    "x with NaN": r"x must be finite; row 2 holds NaN",
    "x with infinity": r"row 1 holds infinity",
    "x overflowing": r"row 3 holds numbers so large",
    "logits of NaN": r"row 2 holds NaN",
    "score of a wrong label": r"row 2 holds 12",
    "empty batch, mean": r'mean of an empty batch .*reduction="sum"',
    "unknown reduction": r"unknown reduction 'average'.*mean, none, sum",
    "unknown margin": r"unknown margin 'arcfase': did you mean 'arcface'\?",
    "unknown parameter": r"unknown parameter of ArcFace 'q': Choose from continuation, m",
    "unknown parameter of a head": r"unknown parameter of arcface 'engine': Choose from continuation, k, m, s",
    "k inside the margin": r"k belongs to the head.*k=3",
    "softmax as a margin": r"LinearHead",
    "flag a word": r"plus must be true or false, got 'no'",
    "mode of second derivative": r'chunked.*differentiated once.*engine="eager"',
    "split_lse of half": r"x must be float32 or float64",
    "split_lse of too few labels": r"one label per row",
    "split_lse of float labels": r"whole-number class labels, got torch\.float32\. Pass y\.long",
    "split_lse of a learned s": r"s must be a number",
    "s beyond every number": r"s must be a number from 1e-06 to 1e\+06",
    "encode floats": r"pixels are bytes, 0 to 255 in uint8, got float32\. If they were divided",
    "batch of floats": r"pixels are bytes",
    "embed with a path": r"pass arcwise\.load_encoder\('runs/x'\)",
    "embed into with a path": r"pass arcwise\.load_encoder\('runs/x'\)",
    "a gallery with a path": r"pass arcwise\.load_encoder\('runs/x'\)",
    "a gallery opened with a number": r"a model is needed, .* got int",
    "labels of floats": r"whole numbers, got float64",
    "an image that is a number": r"path, bytes, Pillow's image or an array, got int",
    "a network that is a class": r"built already",
    "a head that is a number": r"a Head, a LinearHead, a margin or text; got 3",
    "a recipe that is a number": r"recipe's name such as digits-2d, got 5",
    "head from None": r'expected a name such as "arcface"',
    "margin a layer": r"cannot build Linear",
    "skip without the engine for it": r'engine="chunked" leaves no class out: pass skip=0',
    "split_lse skip": r'engine="eager" leaves no class out',
    "skip of nearly everything": r"skip must be a number from 0 to 0\.1",
    "nesterov a word": r"nesterov must be true or false",
    "betas one number": r"betas must be two numbers such as \(0\.9, 0\.999\), got 0\.9",
    "counts beyond every number": "counts must be one number of samples",
    "m beyond every number": r"m must be a number from 0 to 3\.14",
    "paper continuation too wide": r"m must be a number from 0 to 2.33",
    "s inside the margin": r"s belongs to the head.*s=16",
    "per-class of wrong length": r"holds 2 margins, one per class, but the head has 10",
    "unknown engine": r"unknown engine 'cuda'.*auto, chunked, eager",
    "unknown head": r"did you mean 'arcface'",
    "rows that are a tensor": r"x of embeddings is a NumPy array, got Tensor: pass x\.detach\(\)\.cpu\(\)\.numpy\(\)",
    "labels that are a list": r"pass np\.asarray\(y\)",
    "half a model": r"the weights are float16 .*model\.float\(\)",
    "a double model": r"the weights are float64",
    "a brain model": r"the weights are bfloat16",
    "sphereface m below 1": r"m must be a number from 1 to 100, got 0\.5",
}


@pytest.fixture(scope="module")
def outcomes():
    script = Path(__file__).parent / "wrong_calls.py"
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_every_wrong_call_raises_an_arcwise_error(outcomes):
    assert len(outcomes) > 90
    kinds = ("ArcwiseError", "NotFinite")
    assert [o for o in outcomes if o.get("error") not in kinds] == []


@pytest.mark.parametrize("name", SAYS)
def test_the_message_names_the_argument_and_what_to_do(name, outcomes):
    found = [o for o in outcomes if o["name"].split(": ")[-1] == name]
    assert found
    for outcome in found:
        assert re.search(SAYS[name], outcome["message"]), outcome
