"""The heads against the textbook, in float64 and in the working precisions, for every margin and engine."""

import copy
import math
import pickle
import warnings

import pytest
import torch
import torch.nn.functional as F

import arcwise
from arcwise.margins import MARGINS
from textbook import CASES, PLAIN, head_for, plain_losses, textbook_losses

ENGINES = ("eager", "chunked")


def batch(b, d, c, dtype=torch.float64):
    """Embeddings of lengths from 2 to 140, so that every branch of the norm margins is met."""
    x = F.normalize(torch.randn(b, d, dtype=dtype)) * torch.linspace(2.0, 140.0, b, dtype=dtype)[:, None]
    return x.requires_grad_(), torch.randint(c, (b,))


def relative(a, b):
    return float((a - b).detach().norm() / b.detach().norm().clamp(min=1e-300))


def assert_equals_textbook(case, engine, *, b, d, c, k, s=16.0, block=3):
    x, y = batch(b, d, c)
    head = head_for(case, c, x, s=s, k=k, engine=engine, classes_per_block=block)
    truth = textbook_losses(case, x, head.weight, y, s)
    true_dx, true_dw = torch.autograd.grad(truth.mean(), (x, head.weight))
    loss = head(x, y, reduction="none")
    dx, dw = torch.autograd.grad(loss.mean(), (x, head.weight))
    assert relative(loss, truth) <= 1e-10
    assert relative(dx, true_dx) <= 1e-10
    assert relative(dw, true_dw) <= 1e-10


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_equal_the_textbook(name, k, engine):
    assert_equals_textbook(CASES[name], engine, b=7, d=5, c=11, k=k)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("b", "c", "k"), [(1, 2, 1), (1, 11, 3), (7, 2, 3)])
@pytest.mark.parametrize("name", CASES)
def test_odd_sizes_equal_the_textbook(name, b, c, k, engine):
    assert_equals_textbook(CASES[name], engine, b=b, d=3, c=c, k=k, block=2)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["arcface", "curricularface", "noise-filter"])
def test_one_sample_of_1009_classes_equals_the_textbook(name, engine):
    assert_equals_textbook(CASES[name], engine, b=1, d=3, c=1009, k=1, block=100)


@pytest.mark.parametrize("engine", ENGINES)
def test_seven_samples_of_1009_classes_equal_the_textbook(engine):
    assert_equals_textbook(CASES["arcface"], engine, b=7, d=4, c=1009, k=1, s=64.0, block=100)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("plus", [False, True])
@pytest.mark.parametrize("kind", ["arc", "cos"])
def test_drawn_margins_equal_the_textbook_with_the_same_draws(kind, plus, engine):
    b, d, c = 7, 5, 11
    head = arcwise.Head(d, c, margin=f"elastic-{kind}face:std=0.3,plus={plus}", s=16.0, engine=engine).double()
    x, y = batch(b, d, c)
    torch.manual_seed(5)
    loss = head(x, y, reduction="none").detach()
    torch.manual_seed(5)
    m = (0.5 if kind == "arc" else 0.35) + 0.3 * torch.randn(b, dtype=torch.float64)
    m = m.clamp(min=0.0)
    with torch.no_grad():
        cos = F.normalize(x) @ F.normalize(head.weight).T
    if plus:  # the farthest sample, of smallest own cosine, gets the largest margin
        far_first = sorted(range(b), key=lambda i: float(cos[i, y[i]]))
        for place, value in zip(far_first, sorted(m.tolist(), reverse=True), strict=True):
            m[place] = value
    for i in range(b):
        theta = torch.acos(cos[i, y[i]])
        psi = torch.cos(theta) - m[i] if kind == "cos" else torch.cos(theta + m[i])
        if kind == "arc" and theta + m[i] > torch.pi:
            psi = torch.cos(theta) - (1 - torch.cos(m[i]))
        logits = 16.0 * cos[i].clone()
        logits[y[i]] = 16.0 * psi
        assert float(loss[i]) == pytest.approx(float(F.cross_entropy(logits, y[i])), rel=1e-10)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_gradcheck_passes(name, k, engine):
    b, d, c = 4, 3, 5
    x, y = batch(b, d, c)
    head = head_for(CASES[name], c, x, s=4.0, k=k, engine=engine, classes_per_block=2)
    if name == "adaface":  # its quality is detached: hold it constant by clipping it at both ends
        head.margin.std.fill_(1e-6)
    w = head.weight.detach().clone().requires_grad_()

    def loss(x, w):
        return torch.func.functional_call(head, {"weight": w}, (x, y), {"reduction": "none"})

    assert torch.autograd.gradcheck(loss, (x, w))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["elastic-arcface", "elastic-cosface:plus=true", "curricularface:t_alpha=0"])
def test_gradcheck_passes_in_training_mode_with_draws_fixed(name, engine):
    head = arcwise.Head(3, 5, margin=name, s=4.0, engine=engine).double()
    x, y = batch(4, 3, 5)

    def loss(x):
        torch.manual_seed(3)
        return head(x, y, reduction="none")

    assert torch.autograd.gradcheck(loss, (x,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", PLAIN)
def test_rounding_error_is_at_most_twice_that_of_plain_torch(name, k, dtype):
    """Against our own head in float64, which the tests above hold to the textbook."""
    b, d, c, s = 128, 32, 101, 16.0
    w = torch.randn(c, k, d)
    x, y = batch(b, d, c, torch.float32)
    norm = x.norm(dim=1, keepdim=True)
    x = (x + norm * F.normalize(w[y, 0])).detach().to(dtype)  # about 45 degrees from the own centre
    w = w.to(dtype)

    def errors(losses, to):
        xx, ww = x.to(to).requires_grad_(), w.to(to).requires_grad_()
        loss = losses(xx, ww)
        dx, dw = torch.autograd.grad(loss.mean(), (xx, ww))
        return loss.detach().double(), dx.double() * norm, dw.double()  # dx falls as 1/|x|: weigh all rows alike

    def head_losses(engine):
        head = head_for(CASES[name], c, x.float(), s=s, k=k, engine=engine, classes_per_block=9).float()
        return lambda x, w: torch.func.functional_call(
            head, {"weight": w.reshape(head.weight.shape)}, (x, y), {"reduction": "none"}
        )

    truth = errors(head_losses("eager"), torch.float64)
    plain = errors(lambda x, w: plain_losses(PLAIN[name], x, w, y, s), dtype)
    for engine in ENGINES:
        ours = errors(head_losses(engine), dtype)
        for true, theirs, mine in zip(truth, plain, ours, strict=True):
            assert relative(mine, true) <= 2.0 * relative(theirs, true) + torch.finfo(torch.float32).eps, engine


@pytest.mark.parametrize("name", MARGINS)
def test_thirty_steps_trace_the_same_curve_in_both_engines(name):
    curves = {}
    for engine in ENGINES:
        torch.manual_seed(1)
        centres = torch.randn(37, 8)
        net = torch.nn.Linear(8, 16)
        head = arcwise.Head(16, 37, margin=name, s=16.0, k=2, engine=engine, memory=20_000)
        optimiser = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.05, momentum=0.9)
        curves[engine] = []
        for step in range(30):
            torch.manual_seed(100 + step)
            y = torch.randint(37, (16,))
            loss = head(net(centres[y] + 0.3 * torch.randn(16, 8)), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            curves[engine].append(loss.item())
    assert curves["eager"][-1] < curves["eager"][0]
    assert curves["chunked"] == pytest.approx(curves["eager"], rel=2e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_straight_through_has_the_same_value_and_insightfaces_gradient(engine):
    # At cos 0.3 calculus gives d(s psi)/dcos = 65.8 for s = 64, m = 0.5; straight-through gives 64.0.
    x, y = torch.tensor([[0.3, (1 - 0.09) ** 0.5]], dtype=torch.float64), torch.tensor([0])
    w = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    slopes, values = {}, {}
    for gradient in ("exact", "straight_through"):
        head = arcwise.Head(2, 2, s=64.0, gradient=gradient, engine=engine).double()
        head.weight.data.copy_(w)
        values[gradient] = head(x, y)
        (dw,) = torch.autograd.grad(values[gradient], head.weight)
        # w_0 sees x's tangential part, 0.954 long, times p = 1 (the sample is far on the wrong side)
        slopes[gradient] = float(-dw[0, 1] / x[0, 1])
    assert values["exact"] == values["straight_through"]
    assert slopes["exact"] == pytest.approx(64 * (math.cos(0.5) + math.sin(0.5) * 0.3 / (1 - 0.09) ** 0.5), rel=1e-9)
    assert slopes["straight_through"] == pytest.approx(64.0, abs=1e-9)


def test_the_worked_numbers_of_softmax_hold():
    head = arcwise.LinearHead(2, 5)
    head.weight.data = torch.tensor([[0.96, 0.37], [-0.67, -0.33], [0.31, 1.03], [0.45, -0.77], [-0.66, 0.59]])
    logits = head.logits(torch.tensor([[18.14, 2.41]])).detach()
    assert logits[0].tolist() == pytest.approx([18.30, -13.03, 8.16, 6.22, -10.52], abs=0.1)
    assert float(logits.softmax(1)[0, 0]) == pytest.approx(1.0, abs=1e-4)


def test_the_worked_cosines_of_the_arcface_example_are_the_right_ones():
    head = arcwise.Head(2, 5, margin="arcface:m=0.5", s=1.0)
    head.weight.data = torch.tensor([[0.37, 0.46], [-0.35, 0.49], [-0.05, -1.19], [0.34, -0.12], [-0.45, -0.14]])
    x = torch.tensor([[0.62, 0.78]])
    assert head.logits(x)[0].tolist() == pytest.approx([1.00, 0.28, -0.81, 0.33, -0.83], abs=0.006)
    cos_y = head.score(x, torch.tensor([0])).cos_y
    psi = head.margin(cos_y, norm=torch.ones(1), y=torch.tensor([0]))
    assert float(psi) == pytest.approx(0.88, abs=0.01)  # the inputs are printed with two digits


def test_logits_and_score_never_see_the_margin():
    x, y = torch.randn(9, 4), torch.randint(6, (9,))
    plain, wide = (
        arcwise.Head(4, 6, margin="normface", s=8.0),
        arcwise.Head(4, 6, margin="arcface:m=1.5", s=8.0),
    )
    wide.weight.data = plain.weight.data
    assert torch.equal(plain.logits(x), wide.logits(x))
    a, b = plain.score(x, y), wide.score(x, y)
    assert torch.equal(a.correct, b.correct)
    assert torch.equal(a.cos_y, b.cos_y)
    assert (b.loss > a.loss).all()


@pytest.mark.parametrize("head", [arcwise.Head(4, 6, s=8.0, k=2), arcwise.LinearHead(4, 6, bias=True)])
def test_score_agrees_with_the_logits(head):
    x, y = torch.randn(50, 4), torch.randint(6, (50,))
    scores, logits = head.score(x, y), head.logits(x)
    assert torch.equal(scores.correct, logits.argmax(1) == y)
    assert torch.allclose(scores.loss, head(x, y, reduction="none"))
    assert not scores.loss.requires_grad


@pytest.mark.parametrize(
    "head",
    [
        arcwise.Head(2, 3, engine="eager"),
        arcwise.Head(2, 3, engine="chunked", memory=1),
        arcwise.LinearHead(2, 3),
        arcwise.LinearHead(2, 3, bias=True),
    ],
)
def test_a_tie_is_not_a_correct_answer(head):
    head.weight.data = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    x = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 2.0]])  # the last is half-way between all three
    assert head.score(x, torch.tensor([0, 1, 2, 2])).correct.tolist() == [False, False, True, False]


@pytest.mark.parametrize("name", MARGINS)
def test_score_moves_no_statistics_and_keeps_the_mode(name):
    head = arcwise.Head(4, 6, margin=name)
    before = copy.deepcopy(dict(head.margin.named_buffers()))
    head.score(torch.randn(9, 4), torch.randint(6, (9,)))
    assert head.margin.training
    assert all(torch.equal(value, before[key]) for key, value in head.margin.named_buffers())


def test_reductions_agree():
    head, x, y = arcwise.Head(4, 6), torch.randn(9, 4), torch.randint(6, (9,))
    each = head(x, y, reduction="none")
    assert each.shape == (9,)
    assert head(x, y) == each.mean()
    assert head(x, y, reduction="sum") == each.sum()


def test_the_parameter_is_never_overwritten_by_its_normalised_copy():
    head = arcwise.Head(4, 6)
    with torch.no_grad():
        head.weight.mul_(torch.linspace(0.5, 3.0, 6)[:, None])
    before = head.weight.clone()
    head(torch.randn(9, 4), torch.randint(6, (9,))).backward()
    assert torch.equal(head.weight, before)
    radial = (head.weight.grad * head.weight).sum(1)
    assert radial.abs().max() < 1e-5


@pytest.mark.parametrize("name", MARGINS)
def test_heads_are_ordinary_modules(name):
    head, x, y = arcwise.Head(4, 6, margin=name, k=2), torch.randn(9, 4), torch.randint(6, (9,))
    head(x, y)  # moves the statistics
    head.eval()
    loss = head(x, y)
    twin = arcwise.Head(4, 6, margin=name, k=2).eval()
    twin.load_state_dict(head.state_dict())
    for other in (
        twin,
        copy.deepcopy(head),
        pickle.loads(pickle.dumps(head)),
        head.to("cpu").requires_grad_(False),
    ):
        assert torch.equal(other(x, y), loss)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("engine", ENGINES)
def test_autocast_changes_neither_the_precision_of_the_loss_nor_the_weight(engine, dtype):
    head = arcwise.Head(8, 30, engine=engine, memory=5_000)
    x, y = torch.randn(9, 8).to(dtype).requires_grad_(), torch.randint(30, (9,))
    full = head(x.float(), y)
    with torch.autocast("cpu", dtype=dtype):
        loss = head(x, y)
        logits = head.logits(x)
    loss.backward()
    assert loss.dtype == logits.dtype == head.weight.dtype == torch.float32
    assert torch.equal(loss, full)
    assert x.grad.dtype == dtype
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", ["adaface", "curricularface"])
def test_running_statistics_stay_in_float32_when_the_model_goes_to_bf16(name):
    model = torch.nn.Sequential(arcwise.Head(8, 30, margin=name)).bfloat16()
    assert model[0].weight.dtype == torch.bfloat16
    assert all(buffer.dtype == torch.float32 for buffer in model[0].margin.buffers())
    before = {key: value.clone() for key, value in model[0].margin.named_buffers()}
    model[0](torch.randn(9, 8), torch.randint(30, (9,)))
    assert all(not torch.equal(value, before[key]) for key, value in model[0].margin.named_buffers())


def test_a_head_in_bf16_trains_with_bf16_gradients():
    for engine in ENGINES:
        head = arcwise.Head(8, 30, engine=engine, memory=5_000, dtype=torch.bfloat16)
        head(torch.randn(9, 8), torch.randint(30, (9,))).backward()
        assert head.weight.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MARGINS)
def test_one_class_has_zero_loss_and_zero_gradient(name, engine, k):
    head = arcwise.Head(4, 1, margin=name, engine=engine, k=k)
    x, y = torch.randn(5, 4, requires_grad=True), torch.zeros(5, dtype=torch.long)
    loss = head(x, y)
    loss.backward()
    penalty = getattr(head.margin, "penalty", None)  # MagFace's regulariser has nothing to do with classes
    assert loss == (penalty(x.norm(dim=1)).mean() if penalty else 0.0)
    assert head.weight.grad.abs().max() == 0.0
    if name != "magface":
        assert x.grad.abs().max() == 0.0
    scores = head.score(x, y)
    assert scores.correct.all()
    assert (scores.cos_other == -1.0).all()


@pytest.mark.parametrize("name", MARGINS)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_empty_batch_sums_to_zero_with_zero_gradient(name, engine):
    head = arcwise.Head(4, 6, margin=name, engine=engine)
    loss = head(torch.zeros(0, 4, requires_grad=True), torch.zeros(0, dtype=torch.long), reduction="sum")
    loss.backward()
    assert loss == 0.0
    assert head.weight.grad.abs().max() == 0.0
    assert head(torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), reduction="none").shape == (0,)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-13])
def test_a_vector_or_prototype_without_direction_gives_finite_loss_and_zero_gradient(length, engine):
    head = arcwise.Head(4, 6, engine=engine)
    head.weight.data[2] *= length
    x = torch.randn(5, 4)
    x[1] *= length
    x.requires_grad_()
    loss = head(x, torch.tensor([0, 1, 2, 3, 4]))
    loss.backward()
    assert loss.isfinite()
    assert x.grad.isfinite().all()
    assert x.grad[1].abs().max() == 0.0
    assert head.weight.grad[2].abs().max() == 0.0
    assert x.grad.abs().max() < 1e3


def test_one_sample_moves_adafaces_mean_but_not_its_spread():
    head = arcwise.Head(4, 6, margin="adaface:t_alpha=0.5")
    head(torch.full((1, 4), 5.0), torch.tensor([0]))
    assert float(head.margin.mean) == pytest.approx(0.5 * 10.0 + 0.5 * 20.0)
    assert float(head.margin.std) == 100.0


def test_head_from_reads_a_line_of_text():
    head = arcwise.head_from("arcface:m=0.3,s=16,k=3", 8, 10)
    assert (head.margin.m, head.s, head.weight.shape) == (0.3, 16.0, (10, 3, 8))
    assert arcwise.head_from("softmax-bias", 8, 10).bias is not None
    assert arcwise.head_from("softmax", 8, 10).bias is None
    assert arcwise.Head(8, 10, margin="cosface:m=0.2").margin.m == 0.2


def test_the_gradient_can_be_taken_twice_in_the_eager_engine():
    head = arcwise.Head(3, 4, s=4.0, engine="eager").double()
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: head(x, torch.tensor([0, 1])), (x,))


def test_every_margin_stands_beside_the_textbook():
    built = {type(case.build(11)) for case in CASES.values()}
    assert built == set(MARGINS.values())
    assert set(PLAIN) == set(CASES)


def test_magface_at_its_neutral_parameters_is_normface_with_its_regulariser():
    plain = arcwise.Head(4, 6, margin="normface")
    head = arcwise.Head(4, 6, margin=arcwise.margins.MagFace(**arcwise.margins.MagFace.neutral))
    head.weight.data = plain.weight.data
    x, y = 5 * torch.randn(9, 4), torch.randint(6, (9,))
    difference = head(x, y, reduction="none") - plain(x, y, reduction="none")
    assert torch.allclose(difference, head.margin.penalty(x.norm(dim=1)), atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_the_linear_head_is_softmax_cross_entropy(bias):
    head = arcwise.LinearHead(3, 5, bias=bias).double()
    if bias:
        head.bias.data.normal_()
    x, y = torch.randn(7, 3, dtype=torch.float64, requires_grad=True), torch.randint(5, (7,))
    losses = []
    for i in range(7):
        z = [x[i] @ head.weight[j] + (head.bias[j] if bias else 0.0) for j in range(5)]
        losses.append(torch.log(sum(torch.exp(v) for v in z)) - z[int(y[i])])
    truth = torch.stack(losses)
    loss = head(x, y, reduction="none")
    assert relative(loss, truth) <= 1e-12
    parameters = (x, *head.parameters())
    ours, theirs = torch.autograd.grad(loss.mean(), parameters), torch.autograd.grad(truth.mean(), parameters)
    assert all(relative(a, b) <= 1e-12 for a, b in zip(ours, theirs, strict=True))


def test_the_linear_head_is_an_ordinary_module():
    head, x, y = arcwise.LinearHead(4, 6, bias=True), torch.randn(9, 4), torch.randint(6, (9,))
    twin = arcwise.LinearHead(4, 6, bias=True)
    twin.load_state_dict(head.state_dict())
    for other in (twin, copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        assert torch.equal(other(x, y), head(x, y))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(head(x, y), twin(x, y))
        assert head(x, y).dtype == torch.float32
    assert twin(x[:0], y[:0], reduction="sum") == 0.0


class Scored(torch.utils.data.Dataset):
    """Scores its own rows, so that the head travels into the worker."""

    def __init__(self):
        self.head = arcwise.Head(4, 6, margin="adaface")
        self.x, self.y = torch.randn(8, 4), torch.randint(6, (8,))

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return self.head.score(self.x[i : i + 1], self.y[i : i + 1]).loss


def test_a_head_works_inside_a_data_loaders_worker():
    data = Scored()
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=1, multiprocessing_context="fork")
    with warnings.catch_warnings(action="ignore"):  # Python's own, on forking with threads
        (losses,) = list(loader)
    assert torch.allclose(losses[:, 0], data.head.score(data.x, data.y).loss)


@pytest.mark.parametrize("engine", ENGINES)
def test_backward_inside_autocast_works(engine):
    head = arcwise.Head(8, 30, engine=engine, memory=5_000)
    x, y = torch.randn(9, 8), torch.randint(30, (9,))
    head(x, y).backward()
    outside = head.weight.grad.clone()
    head.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        head(x, y).backward()
    # autograd runs eager's products in the type of the region it is called in; chunked's are its own
    assert relative(head.weight.grad, outside) < (0.02 if engine == "eager" else 1e-6)


def test_a_bad_label_that_nobody_looked_at_is_nan_and_never_correct(monkeypatch):
    monkeypatch.setattr("arcwise.admit.values_checked", lambda *_: False)
    for head in (arcwise.Head(4, 6), arcwise.Head(4, 6, engine="chunked"), arcwise.LinearHead(4, 6)):
        x = torch.cat([head.weight.detach()[[5, 0]], head.weight.detach()[[2]]])
        scores = head.score(x, torch.tensor([6, -1, 2]))
        assert scores.loss.isnan().tolist() == [True, True, False]
        assert scores.cos_y.isnan().tolist() == [True, True, False]
        assert scores.correct.tolist() == [False, False, True]


@pytest.mark.parametrize("name", ["adaface", "curricularface"])
def test_a_bad_batch_that_nobody_looked_at_moves_no_statistics(name, monkeypatch):
    monkeypatch.setattr("arcwise.admit.values_checked", lambda *_: False)
    head, y = arcwise.Head(4, 6, margin=name), torch.randint(6, (9,))
    before = {key: value.clone() for key, value in head.margin.named_buffers()}
    for bad in (torch.nan, torch.inf):
        x = torch.randn(9, 4)
        x[0, 0] = bad
        assert head(x, y).isnan()
    if name == "curricularface":  # a label out of range has no own cosine; AdaFace looks at norms alone
        assert head(torch.randn(9, 4), y + 99).isnan()
    assert all(torch.equal(value, before[key]) for key, value in head.margin.named_buffers())
    assert head(torch.randn(9, 4), y).isfinite()


def test_reset_parameters_starts_everything_anew():
    head = arcwise.Head(4, 6, margin="adaface")
    head(torch.randn(9, 4), torch.randint(6, (9,)))
    weight = head.weight.clone()
    head.weight.data.fill_(7.0)
    head.reset_parameters()
    assert (float(head.margin.mean), float(head.margin.std)) == (20.0, 100.0)
    assert not torch.equal(head.weight, weight) and len(head.weight.unique()) == 24
    assert torch.allclose(head.weight.norm(dim=1), torch.ones(6))


def test_prototypes_begin_in_directions_of_every_kind():
    w = arcwise.Head(3, 4000).weight.detach()  # of a uniform direction each coordinate has mean 0 and square 1/3
    assert torch.allclose(w.mean(0), torch.zeros(3), atol=0.05) and torch.allclose(
        w.square().mean(0), torch.ones(3) / 3, atol=0.03
    )


def test_a_linear_head_begins_as_torchs_linear_layer_and_without_bias():
    head = arcwise.LinearHead(16, 500, bias=True)
    for values in (head.weight, head.bias):
        values.data.fill_(7.0)
    head.reset_parameters()
    w = head.weight.detach()  # uniform in +-1/4: of square 1/48
    assert 0.24 < w.abs().max() <= 0.25 and float(w.mean()) == pytest.approx(0.0, abs=0.01)
    assert float(w.square().mean()) == pytest.approx(1 / 48, rel=0.05) and not head.bias.any()


@pytest.mark.parametrize("engine", ENGINES)
def test_half_the_strength_of_a_margin_is_half_the_margin(engine):
    whole, half = (arcwise.Head(4, 6, margin=f"cosface:m={m}", s=8.0, engine=engine) for m in (0.4, 0.1))
    half.load_state_dict(whole.state_dict())
    x, y = torch.randn(9, 4), torch.randint(6, (9,))
    plain = torch.nn.functional.cross_entropy(whole.logits(x), y)
    for strength, wanted in ((0.0, plain), (0.25, half(x, y))):
        whole.set_strength(strength)
        assert whole(x, y).item() == pytest.approx(wanted.item(), rel=1e-5)
    with pytest.raises(arcwise.ArcwiseError, match="strength must be a number from 0 to 1"):
        whole.set_strength(1.5)


def test_score_leaves_every_part_in_the_mode_it_was_in():
    head = arcwise.Head(4, 6, margin=arcwise.margins.NoiseFilter("adaface"))
    head.margin.margin.eval()
    head.score(torch.randn(9, 4), torch.randint(6, (9,)))
    assert head.margin.training
    assert not head.margin.margin.training


def test_buffers_survive_a_cast_to_bf16_without_rounding():
    head = arcwise.Head(4, 3, margin=arcwise.margins.ArcFace([0.3, 0.31, 0.33])).bfloat16()
    assert torch.equal(head.margin.m, torch.tensor([0.3, 0.31, 0.33]))
    assert "margin.m" in head.state_dict()


def test_the_inner_margin_of_the_filter_can_be_given_as_text():
    assert arcwise.Head(4, 6, margin="noise-filter:margin=cosface:m=0.2").margin.margin.m == 0.2


def test_a_wrong_reduction_moves_no_statistics():
    head = arcwise.Head(4, 6, margin="adaface")
    with pytest.raises(arcwise.ArcwiseError, match="unknown reduction 'average'"):
        head(torch.randn(9, 4), torch.randint(6, (9,)), reduction="average")
    assert float(head.margin.mean) == 20.0


def test_a_frozen_weight_costs_no_gradient():
    for engine in ENGINES:
        head = arcwise.Head(4, 6, engine=engine).requires_grad_(False)
        x = torch.randn(9, 4, requires_grad=True)
        head(x, torch.randint(6, (9,))).backward()
        assert head.weight.grad is None
        assert x.grad.isfinite().all()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_head_never_clamps_what_carries_a_gradient(engine, monkeypatch):
    """torch changed clamp's gradient at the bound between versions."""
    real = torch.Tensor.clamp

    def integers_only(self, *args, **kwargs):
        assert not self.is_floating_point()
        return real(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "clamp", integers_only)
    for name in MARGINS:
        arcwise.Head(4, 6, margin=name, engine=engine)(torch.randn(9, 4), torch.randint(6, (9,))).backward()


@pytest.mark.parametrize("name", ["arcface:m=0.5,continuation=paper", "cosface:m=0.35"])
@pytest.mark.parametrize("engine", ENGINES)
def test_an_independent_library_gives_the_same_loss_and_gradient(name, engine):
    peer = pytest.importorskip("pytorch_metric_learning.losses")
    theirs = (
        peer.ArcFaceLoss(11, 5, margin=math.degrees(0.5)) if "arc" in name else peer.CosFaceLoss(11, 5, margin=0.35)
    )
    theirs.W.data = theirs.W.data.double()
    ours = arcwise.Head(5, 11, margin=name, s=64.0, engine=engine).double()
    ours.weight.data = theirs.W.data.T.contiguous()
    x, y = batch(64, 5, 11)
    a, b = ours(x, y), theirs(x, y)
    assert relative(a, b) < 1e-10
    (dx, dw), (their_dx, their_dw) = torch.autograd.grad(a, (x, ours.weight)), torch.autograd.grad(b, (x, theirs.W))
    assert relative(dx, their_dx) < 1e-8
    assert relative(dw, their_dw.T) < 1e-8


def test_at_the_poles_we_are_finite_where_pytorch_metric_learning_is_nan():
    peer = pytest.importorskip("pytorch_metric_learning.losses")
    theirs, ours = peer.ArcFaceLoss(3, 2), arcwise.Head(2, 3)
    centres = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    theirs.W.data, ours.weight.data = centres.T.contiguous(), centres
    x, y = torch.tensor([[2.0, 0.0], [-1.0, 0.0]], requires_grad=True), torch.tensor([0, 0])
    (their_dx,), (our_dx,) = torch.autograd.grad(theirs(x, y), x), torch.autograd.grad(ours(x, y), x)
    assert their_dx.isnan().any()
    assert our_dx.isfinite().all()
