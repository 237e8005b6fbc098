"""The words of hostile command lines: good ones and bad ones, by what an option is called and what it takes."""

from __future__ import annotations

from arcwise.margins import MARGINS
from arcwise.recipes import RECIPES

Words = tuple[str, ...]


def split(text: str) -> Words:
    """The words of a text."""
    return tuple(text.split())


SPACED = (
    "", " ", "\u202etfel", "\x1b[2J", "a\nb", "\t", "\udcff", "; ls", "1 ", "x" * 5000, "a b", " -- ", "\r", "\u2028",
)  # fmt: skip
ODD = (*SPACED, *split("""
    - -- --- -1 = --= a=b ü 漢字 ' " $HOME `ls` * ? [ ] [0- {} %s \\ # ~ nan none null true 0 --help --version -h @file
    a,b , : :: <b> １２
"""))  # fmt: skip
WHOLE = split("1 2 3 5 10")
NO_WHOLE = split("""
    0 -1 -0 2.5 1e3 1_000 0x10 99999999999999999999999 -99999999999999999999 nan inf ٣ +4 true 2147483648
    9223372036854775808
""")  # fmt: skip
REAL = split("0 0.1 0.25 0.5 1")
NO_REAL = split("-1 nan inf -inf 1e400 1e-400 0.99999999999 1,5 1e 0x1p-2 --1")
PLACES = split("""
    run comparison unfinished run/model.safetensors run/embeddings/test.safetensors new new/deeper/still empty
    run/embeddings/unseen.safetensors run/prototypes/final.safetensors comparison/softmax-bias-seed0
    exported/model.onnx exported spread
""")  # fmt: skip
NO_PLACES = ("", " ", "\udcff", "ü ber/run", "new\nline", "run\x1b[1m", "to the run", "y" * 300, "z/" * 2100, *split("""
    stranger stranger/metrics.json stranger/report.html stranger/notes.md stranger/new stranger/report pictures
    pictures/a pictures/a/0.png table table/labels.csv cache cache/folders images images/colour.jpg file.txt
    file.txt/under run/config.json run/result.json run/metrics.json run/journal.jsonl run/checkpoints run/figures
    run/new run/.lock comparison/comparison.json comparison/metrics.json comparison/new unfinished/checkpoints
    insight/named.pth insight/short.pth insight people people/gallery.json people/new exported/new.onnx pairs/pairs.csv
    exported/thresholds.json . .. ./run/ run/../run nowhere/at/all pipe loop dangling * -
    ~/x ~nobody/x /proc/self/nothing
"""))  # fmt: skip
SOURCES = split("""
    digits digits[0-4] folder:pictures folder:table folder:odd synthetic:classes=4,per_class=6
    folder:pictures[a-c]
""")  # fmt: skip
NO_SOURCES = ("folder:\udcff", "folder:" + "y" * 300, "folder: ", "folder:a b", *split("""
    mnist cifar10[0-4] fashion-mnist cifar100 folder folder: folder:nowhere folder:run folder:stranger folder:file.txt
    folder:empty folder:images folder:.. folder:pipe folder:loop digits[ digits] digits[] digits[5-2] digits[0-99]
    digits[a] digits[0,0] digits[0] digits:x synthetic: synthetic:classes=0 synthetic:classes=-1 synthetic:classes=x
    synthetic:side=1e9 synthetic:noise=nan synthetic:classes pictures ./pictures folder:pictures/a
    folder:pictures/a/0.png folder:run/model.safetensors given digits[*] digits[0-9-] digits[-] folder:~nobody
"""))  # fmt: skip
HEADS = (*MARGINS, *split("""
    softmax softmax-bias arcface:m=0.3,s=8 arcface:k=2 arcface:m=0.2,continuation=paper
"""))  # fmt: skip
NO_HEADS = split("""
    arcfase arcface: arcface:m arcface:m= arcface:=1 arcface:m=nan arcface:m=9e99 arcface:s=-1 arcface:s=0 arcface:k=0
    arcface:k=1e9 arcface:k=999999999999 arcface:m=1,m=2 softmax:m=1 softmax:k=2 arcface:unheard=1 arcface, ,arcface
    softmax,softmax : arcface:m=true arcface:m=text ArcFace adaface:h=0 adaface:h=nan mv-softmax:t=nan
    magface:l_a=9,u_a=1 sphereface:m=1e9 arcface:gradient=exact arcface:s=1e400 arcface:m=1e-400
""")  # fmt: skip


def both(good: str, bad: str) -> tuple[Words, Words]:
    """Good words and bad ones."""
    return split(good), split(bad)


# What an option of this name takes, whichever verb it belongs to: good words, and bad ones.
WORDS: dict[str, tuple[Words, Words]] = {
    "recipe": both("digits-2d " * 6 + "folder finetune", "digits-2D mnist cifar10 digits folder:pictures"),
    "head": (HEADS, NO_HEADS),
    "heads": ((*HEADS, "softmax,arcface", "softmax-bias,arcface:m=0.3,s=8", "normface:s=8,arcface:s=16"), NO_HEADS),
    "data": (SOURCES, NO_SOURCES),
    "source": (SOURCES, NO_SOURCES),
    "unseen": both("0 e-f 8-9 a", "0-99 z - * a-a 9-0 ? 0-9 a,a run/embeddings/unseen.safetensors"),
    "device": both("auto cpu", "cuda cuda:7 mps meta cpu:0 cpu:99 xla hpu vulkan privateuseone"),
    "part": both("all train validation test unseen", "everything Test"),
    "only": both("* dunn-* accuracy circle roc glance sphere unseen-*", "[ [! no-such sweep CIRCLE"),
    "gpu": both("h200 h100 a100 l40s rtx4090", "h300"),
    "optimiser": both("sgd adamw sgd-inside adamw-inside", "adam"),
    "mirror": both("http://127.0.0.1:9/", "file:///etc/ ftp://x http://[ http:// nourl // http://a:b/ data:,x"),
    "name": ((*list(RECIPES)[:2], "mnist", "cifar100"), ("digits", "MNIST", "../x")),
    "dim": (("2", "3", "8", "64"), NO_WHOLE),
    "seeds": (("1", "2"), NO_WHOLE),
    "workers": (("0", "1"), NO_WHOLE),
    "what": ((*PLACES, *SOURCES, "pictures/a", "pictures/b/1.png"), (*NO_PLACES, *NO_SOURCES, "-")),
    "on": ((*SOURCES, "pictures", "table"), (*NO_SOURCES, *NO_PLACES)),
    "images": both(
        "pictures/a/0.png pictures/c/1.png pictures/f images/colour.jpg pictures", "images/no.jpg file.txt run"
    ),
    "image": both("pictures/a/0.png pictures/c/1.png images/colour.jpg", "pictures images/no.jpg file.txt run pipe"),
    "place": ((*split("people people people people new"), "milvus:"), (*NO_PLACES, "milvus://127.0.0.1:9/people")),
    "model": (PLACES, NO_PLACES),
    "pairs": both("pairs/pairs.csv", "table/labels.csv run nowhere.csv pairs"),
    "by": both("fold name_a name_b", "a same nothing fold,fold"),
    "match": both("best mean weighted", "worst Best"),
    "precision": both("float32 fp16 int8", "float64 bf16"),
    "tags": both("first second", ", a,b"),
    "far": (("0.2", "0.1", "0.01"), NO_REAL),
}
# Settings and their good values: small ones, so that nothing large is ever built.
GOOD_SETTINGS: dict[str, Words] = {
    key: split(values)
    for key, values in (
        ("data.size", "8 12"), ("data.limit", "40 100"), ("data.unseen", "e 0"), ("data.validation", "0.2"),
        ("data.test", "0.2 0.5"), ("data.depth", "1 2"), ("data.fit", "crop pad stretch"), ("data.channels", "1 3"),
        ("data.resample", "bicubic bilinear"), ("data.broken", "skip refuse"), ("data.shift", "1"),
        ("data.cutout", "2"), ("data.rotate", "5"), ("data.imbalance", "2"), ("data.flip", "true none"),
        ("model.dim", "2 3 5"), ("model.norm", "true"), ("model.dropout", "0.1"), ("head.s", "8"), ("head.m", "0.3"),
        ("head.k", "2"), ("head.engine", "auto eager chunked"), ("head.gradient", "exact straight_through"),
        ("head.inside", "true"),
        ("train.epochs", "1 2 50"), ("train.batch", "6 12 64"), ("train.accumulate", "2"), ("train.lr", "0.01"),
        ("train.optimiser", "sgd adamw"), ("train.schedule", "one-cycle cosine constant polynomial"),
        ("train.sampling", "shuffled balanced m-per-class"), ("train.per_class", "2"), ("train.snapshots", "true"),
        ("train.batch_norm", "train frozen"), ("train.patience", "1"), ("train.tensorboard", "true"),
        ("train.checkpoint_every", "0"), ("train.ema", "0.9"), ("train.frozen_epochs", "1"), ("train.mirror", "true"),
    )
}  # fmt: skip
NEVER = ("train.compile", "model.pretrained")  # a compiler takes minutes, and weights come from the network
