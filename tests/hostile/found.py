"""Cases that failed once, as the long runs print them: they are tried again with every test."""

from __future__ import annotations

# A reader, and the edits of its file.
FILES: list[tuple[str, tuple]] = [
    # nested too deeply for Python's own reader
    ("config", (("put", (), "100000 deep"),)),
    ("journal", (("line", 3, ("put", (), "100000 deep")),)),
    ("prototypes", (("meta text", "head", "100000 deep"),)),
    # a comparison without its recipe's name, and one whose runs would bear names too long for the disk
    ("comparison, tabulated", (("drop", ("recipe",)),)),
    ("comparison, tabulated", (("put", ("heads", 1), "a long path"),)),
    # a weight of 4 TB, made of one number
    ("insightface", (("entry", "layer4.1.bn1.weight", "expanded"),)),
    # types that numpy does not have, or that the record does not hold
    ("embeddings", (("tensor", "y", "F8_E4M3"),)),
    ("fetched set", (("tensor", "test_x", "F8_E8M0"),)),
    ("prototypes", (("tensor", "w", "BF16"),)),
    ("prototypes", (("tensor", "w", "C64"),)),
    ("prototypes", (("tensor", "w", "bool"),)),
    ("embeddings", (("tensor", "x", "scalar"),)),
    ("embeddings", (("meta", "names", ("put", (2,), "1e9")),)),
    ("model", (("meta", "names", ("put", (2,), "two point zero")),)),
    # a flipped bit, and a range of zeros, that nobody noticed
    ("model", (("flip", 9994, 2),)),
    ("embeddings", (("flip", 69, 5),)),
    ("prototypes", (("flip", 326, 2),)),
    ("checkpoint", (("flip", 98589, 5),)),
    ("checkpoint", (("zero", 694747, 851464),)),
    ("best weights", (("flip", 36208, 7),)),
    ("fetched set", (("flip", 298, 3),)),
    ("decoded pixels", (("flip", 285, 0),)),
    ("decoded pixels", (("cut", 4),)),
    # values that were used without a look
    ("best weights", (("tensor", "embedder.backbone.body.1.weight", "renamed"),)),
    ("checkpoint, resumed", (("meta", "progress", ("put", ("seconds",), "texts")),)),
    ("model", (("meta", "about", ("put", ("config",), "its list")),)),
    ("model", (("meta", "about", ("put", ("config", "data"), "its table")),)),
    ("config, in a report", (("put", ("versions",), "a lone surrogate"),)),
    ("result, printed", (("put", ("test",), "texts"),)),
    ("result, printed", (("put", ("seconds",), "lines"),)),
    ("result, printed", (("put", ("validation", "accuracy"), "null"),)),
    ("result, printed", (("drop", ("test", "angle_own")),)),
    ("result, printed", (("drop", ("device",)),)),
    ("result, in a report", (("put", ("images",), "texts"),)),
    ("result, in a report", (("put", ("epochs",), "a lone surrogate"),)),
    ("result, in a report", (("put", ("parameters",), "nulls"),)),
    ("metrics, in a report", (("put", ("classes", 0), "5e-324"),)),
    ("epochs", (("put", ("values", 1, "dunn-nearest-mean-cosine-95"), "ragged"),)),
    ("epochs", (("put", ("values", 1, "dunn-nearest-mean-angle-95"), "its text"),)),
    ("config", (("put", ("head", "parameters"), "its table"),)),
    ("prototypes", (("meta", "head", ("extra", ("parameters",), "lists in lists")),)),
    ("checkpoint", (("tensor", "optimiser.4.step", "renamed"),)),
    ("shard of a checkpoint, its sum mended", (("tensor", "optimiser.5.exp_avg_sq", "F8_E8M0"),)),
    ("shard of a checkpoint, its sum mended", (("meta", "DCP_SHARDING_INFO", ("rename", ("optimiser.8.step",))),)),
    ("checkpoint", (("tensor", "random.cpu", "all one"),)),
    ("snapshot", (("meta", "about", ("put", ("accuracy",), "unicode")),)),
    ("metrics, drawn", (("drop", ("confusion", 2, 3)),)),
    ("insightface", (("entry", "features.weight", "a list"),)),
    ("comparison", (("put", ("heads",), "nulls"),)),
    ("comparison", (("extra", ("heads",), "2**63"),)),
    ("comparison", (("extra", ("seeds",), "many"),)),
    ("comparison", (("extra", ("seeds",), "markup"),)),
]

# Command lines, in the sandbox.
COMMANDS: list[list[str]] = [
    ["compare", "digits-2d", "--set", "train.epochs=1", "--out", "unfinished"],
    ["compare", "folder", "--out", "insight", "--workers", "1"],
    ["embed", "run", "digits", "--out", "run/config.json"],
    ["export", "run", ""],
    ["export", "comparison/softmax-bias-seed0", "exported/new.onnx", "--data-dir", "new"],
    ["gallery", "create", "exported/new.onnx", "--model", "run/model.safetensors", "--match", "mean"],
    ["embed", "exported/model.onnx", "-", "--part", "test"],
    ["gallery", "export", "people", "comparison/new"],
    ["pairs", "make", "folder:table", "--seed", "-1"],
    ["calibrate", "exported/model.onnx", "--on", "digits", "--far", "0.1"],
    ["checkpoint", "inspect", "exported/model.onnx"],
]

# Kills: the verb, by what, and when: a number of things done to files, or a share of the time.
KILLS: list[tuple[str, str, int | float]] = [
    ("train", "interrupt twice", 69),
    ("compare", "interrupt twice", 133),
    ("gallery create", "kill", 6),
]

# Failing disks: the verb, what goes wrong, and at which call.
DISK: list[tuple[str, str, int]] = [
    ("figures", "cannot be read", 24),
    ("pairs make", "cannot be read", 77),
]
