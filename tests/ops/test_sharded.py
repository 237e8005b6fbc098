"""Classes spread over processes: the numbers of one process, whatever their number, the margin and the batch."""

import math

import pytest
import torch

import arcwise
from arcwise import optim
from arcwise.errors import ArcwiseError
from arcwise.margins import MARGINS
from arcwise.ops.sampled import Sample, drawn_rows
from ops import spread
from team import Team

COUNTS = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def team():
    made = Team()
    yield made
    made.close()


def alone(margin, k, classes=spread.CLASSES, dtype=torch.float64, **given):
    """The same head in this process, all classes in it."""
    head = arcwise.Head(spread.D, classes, margin=margin, s=12.0, k=k, dtype=dtype, **given)
    head.put_whole_weight(spread.prototypes(k, classes, dtype))
    head.draw_by(77)
    return head


def close(found, wanted, tolerance=1e-9):
    assert torch.allclose(found, wanted, rtol=tolerance, atol=tolerance), float((found - wanted).abs().max())


@pytest.mark.parametrize("engine", ["eager", "chunked"])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("margin", MARGINS)
def test_loss_and_gradients_are_those_of_one_process(margin, k, engine, team):
    head = alone(margin, k, engine=engine)
    x, y = spread.whole_batch()
    x.requires_grad_()
    loss = head(x, y)
    loss.backward()
    with torch.no_grad():
        each, scores = head.eval()(x, y, reduction="none"), head.score(x, y)
    for processes in COUNTS:
        said = team.run(spread.one_step, processes, margin, k, {"engine": engine, "memory": 2000})
        for one in said:
            close(one["loss"], loss.detach())
            close(one["d_w"], head.weight.grad)
            close(one["whole"], head.weight.detach())
            assert torch.equal(one["loss"], said[0]["loss"])  # to the bit: what follows from it must not drift apart
            for name, value in head.margin.named_buffers():
                close(one["buffers"][name], value)
                assert torch.equal(one["buffers"][name], said[0]["buffers"][name])
        for name, wanted in (("d_x", x.grad), ("each", each), ("cos_other", scores.cos_other),
                             ("logits", head.logits(x.detach()))):  # fmt: skip
            close(torch.cat([one[name] for one in said]), wanted)
        assert torch.equal(torch.cat([one["correct"] for one in said]), scores.correct)


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_fewer_classes_than_processes(classes, team):
    head = alone("arcface", 1, classes)
    x, y = spread.whole_batch()
    x.requires_grad_()
    loss = head(x, y % classes)
    loss.backward()
    for processes in COUNTS:
        said = team.run(spread.one_step, processes, "arcface", 1, {}, classes)
        close(said[0]["loss"], loss.detach())
        close(torch.cat([one["d_x"] for one in said]), x.grad)
        close(said[-1]["d_w"], head.weight.grad)


@pytest.mark.parametrize(("margin", "k"), [("arcface", 3), ("adaface", 1), ("curricularface", 1)])
def test_the_fused_engine_spread_out(margin, k, team):
    pytest.importorskip("triton.tools.tensor_descriptor")
    head = alone(margin, k, dtype=torch.float32, engine="eager")
    x, y = spread.whole_batch(torch.float32)
    x.requires_grad_()
    loss = head(x, y)
    loss.backward()
    for processes in (1, 3):
        said = team.run(spread.one_step, processes, margin, k, {"engine": "triton"}, spread.CLASSES, torch.float32)
        close(said[0]["loss"], loss.detach(), 1e-5)
        close(torch.cat([one["d_x"] for one in said]), x.grad, 1e-4)
        close(said[0]["d_w"], head.weight.grad, 1e-4)


def steps_alone(margin, k, *, inside, sample=1.0, **given):
    """Thirty steps in this process, as `spread.thirty_steps` takes them."""
    head = alone(margin, k, sample=sample, **given)
    net = torch.nn.Linear(spread.D, spread.D, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.eye(spread.D))
        net.bias.zero_()
    mover = optim.SGD(head, 0.05, momentum=0.9, weight_decay=1e-3) if inside else None
    outside = [*net.parameters(), *([] if inside else head.parameters())]
    optimiser = torch.optim.SGD(outside, 0.05, momentum=0.9, weight_decay=1e-3)
    for step in range(30):
        x, y = spread.whole_batch(step=step)
        optimiser.zero_grad()
        head(net(x), y).backward()
        optimiser.step()
        if mover is not None:
            mover.step()
    return net.weight.detach(), head.weight.detach()


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("margin", "k"), [("arcface", 1), ("adaface", 3), ("elastic-cosface", 1)])
def test_thirty_steps_trace_those_of_one_process(margin, k, inside, team):
    net, whole = steps_alone(margin, k, inside=inside, engine="chunked")
    for processes in COUNTS:
        said = team.run(spread.thirty_steps, processes, margin, k, {"engine": "chunked"}, inside)
        for one in said:
            close(one["net"], net)
            close(one["whole"], whole)


@pytest.mark.parametrize("corrected", [False, True])
def test_sampled_classes_do_not_depend_on_the_number_of_processes(corrected, team):
    given = {"engine": "chunked", "corrected": corrected}
    net, whole = steps_alone("arcface", 1, inside=True, sample=0.3, **given)
    for processes in COUNTS:
        for one in team.run(spread.thirty_steps, processes, "arcface", 1, given, True, 0.3):
            close(one["net"], net)
            close(one["whole"], whole)


def test_the_messages_of_many_processes_say_the_same(team):
    for processes in COUNTS:
        few, many = (team.run(step, processes, "arcface", 1, {}) for step in (spread.one_step, spread.one_step_of_many))
        for one, other in zip(few, many, strict=True):
            assert torch.equal(other["loss"], many[0]["loss"])
            close(other["loss"], one["loss"])
            for name in ("each", "d_x", "d_w", "cos_other", "logits"):
                close(other[name], one[name])


@pytest.mark.parametrize("draw", [spread.fresh_prototypes, spread.fresh_in_pieces])
@pytest.mark.parametrize("classes", [29, 50, 3])
def test_new_prototypes_are_one_sequence_for_any_number_of_processes(draw, classes, team):
    found = [team.run(draw, processes, classes, 4)[0] for processes in COUNTS]
    assert all(torch.equal(one, found[0]) for one in found)
    assert len(found[0].unique(dim=0)) == classes
    assert torch.allclose(found[0].norm(dim=1), torch.ones(classes))


def test_what_crosses_the_network_does_not_grow_with_the_classes(team):
    few, many = (team.run(spread.bytes_of_a_step, 4, classes) for classes in (40, 4000))
    assert few == many
    widest, numbers = max(spread.SIZES[4]), spread.D + 1 + 2  # a unit, its length, a label of two numbers' bits
    sent = widest * numbers + 3 * spread.B + 4 * widest * spread.D  # gathered, joined, summed and returned
    sizes = 2 * 8  # how many samples each has, and whether it wants a gradient
    assert many == [4 * (sent + 4 * widest * numbers + 4 * 3 * spread.B + widest * spread.D) + 5 * sizes] * 4


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_network_of_ones_own_gets_the_gradient_of_the_mean(kind, team):
    (wanted,) = team.run(spread.through_a_network, 1, "ddp")
    for found in team.run(spread.through_a_network, 2, kind):  # all of whose processes have samples
        for one, other in zip(found, wanted, strict=True):
            close(one, other)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("second derivative", "create_graph"),
        ("second derivative of each", "create_graph"),
        ("second derivative by prototypes", "create_graph"),
        ("nobody has samples", "empty"),
        ("nobody has samples, each", "empty: (0,)"),
    ],
)
def test_what_cannot_be_done_is_refused_by_all(what, words, team):
    assert all(words in said for said in team.run(spread.raises, 2, what))


def test_a_heads_state_tells_what_is_drawn_next(team):
    assert team.run(spread.state_and_back, 2) == [(77, 5), (77, 5)]


def test_without_processes_the_way_to_get_them_is_told():
    with pytest.raises(ArcwiseError, match="init_process_group"):
        arcwise.Head(4, 10, shard=True)


# ---------------------------------------------------------------------------------------- sampled classes


def sampled_by_hand(head, x, y, w, chosen, weight):
    """The loss over the classes that were chosen, from the definition, by autograd over all cosines."""
    cos = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(w).T
    own = cos.gather(1, y[:, None])[:, 0]
    theta = torch.acos(own)
    psi = torch.where(theta + 0.5 <= math.pi, torch.cos(theta + 0.5), own - (1 - math.cos(0.5)))
    counted = torch.zeros(len(w), dtype=torch.bool)
    counted[chosen], counted[y] = True, True
    log_weight = torch.full((len(w),), weight, dtype=x.dtype)
    log_weight[y.unique()] = 0.0
    logits = (head.s * cos + log_weight).masked_fill(~counted, -torch.inf)
    return torch.nn.functional.cross_entropy(logits.scatter(1, y[:, None], head.s * psi[:, None]), y)


@pytest.mark.parametrize("corrected", [False, True])
def test_a_sampled_step_is_that_of_a_slow_reference(corrected):
    head = alone("arcface", 1, sample=0.4, corrected=corrected, engine="chunked")
    optimiser = optim.SGD(head, 0.125, momentum=0.75, weight_decay=0.015625)  # exact in float32
    w, momentum = head.weight.detach().clone(), torch.zeros_like(head.weight)
    still = 0
    for step in range(12):
        x, y = spread.whole_batch(step=step)
        y = y % 4
        chosen = drawn_rows(len(w), Sample(0.4, head.key_now("classes"), 0, corrected), torch.device("cpu"))
        ours, theirs, v = x.clone().requires_grad_(), x.clone().requires_grad_(), w.clone().requires_grad_()
        loss = head(ours, y)
        loss.backward()
        optimiser.step()
        reference = sampled_by_hand(head, theirs, y, v, chosen, math.log(1 / 0.4) if corrected else 0.0)
        reference.backward()
        close(loss.detach(), reference.detach())
        close(ours.grad, theirs.grad)
        moved = torch.zeros(len(w), dtype=torch.bool)
        moved[chosen], moved[y] = True, True
        momentum[moved] = 0.75 * momentum[moved] + v.grad[moved] + 0.015625 * w[moved]
        w[moved] -= 0.125 * momentum[moved]
        close(head.weight.detach(), w)
        assert torch.equal(head.weight.detach()[~moved], w[~moved]) or step  # what is not drawn keeps its bits
        still += int((~moved).sum())
    assert still > 10


def test_classes_that_are_not_drawn_keep_their_bits_and_their_momentum():
    head = alone("arcface", 1, sample=0.3, engine="chunked")
    optimiser = optim.AdamW(head, 0.1)
    for step in range(8):
        x, y = spread.whole_batch(step=step)
        y = y % 3
        before, state = head.weight.detach().clone(), {k: v.clone() for k, v in optimiser.state[head.weight].items()}
        drawn = drawn_rows(len(before), Sample(0.3, head.key_now("classes"), 0, False), torch.device("cpu"))
        resting = [j for j in range(len(before)) if j not in {*drawn.tolist(), *y.tolist()}]
        head(x, y).backward()
        optimiser.step()
        assert torch.equal(head.weight.detach()[resting], before[resting])
        for name in ("first", "second"):
            assert torch.equal(optimiser.state[head.weight][name][resting], state[name][resting])
    assert int(optimiser.state[head.weight]["t"]) == 8


def test_corrected_samples_are_right_on_average():
    """The sum of exponentials over the other classes, over many draws: 1/p undoes that only a share was drawn."""
    head = alone("normface", 1, classes=400, sample=0.1, corrected=True, engine="chunked")
    head.weight.requires_grad_(False)
    x, y = spread.whole_batch()
    sums = []
    for _ in range(3000):
        loss = head(x, y, reduction="none")
        sums.append(torch.expm1(loss))  # e^(lse - s cos_y)
    exact = torch.expm1(head.eval()(x, y, reduction="none"))
    mean, spread_of = torch.stack(sums).mean(0), torch.stack(sums).std(0) / 3000**0.5
    assert ((mean - exact).abs() < 5 * spread_of).all()


def test_sampling_wants_an_optimiser_that_can_leave_classes_alone():
    head = alone("arcface", 1, sample=0.3)
    x, y = spread.whole_batch()
    with pytest.raises(ArcwiseError, match=r"arcwise\.optim"):
        head(x, y)
    with pytest.raises(ArcwiseError, match="engine"):
        arcwise.Head(4, 10, sample=0.5, engine="eager")
    with pytest.raises(ArcwiseError, match="sample must"):
        arcwise.Head(4, 10, sample=0.0)


def test_a_drawn_set_is_a_share_of_the_classes_and_another_in_every_step():
    head = alone("arcface", 1, classes=20_000, sample=0.1)
    first = drawn_rows(20_000, Sample(0.1, head.key_now("classes"), 0, False), torch.device("cpu"))
    head.passes += 1
    second = drawn_rows(20_000, Sample(0.1, head.key_now("classes"), 0, False), torch.device("cpu"))
    assert 1800 < len(first) < 2200
    assert 140 < len(set(first.tolist()) & set(second.tolist())) < 260
