"""What a function of a batch returns, from kernels recorded once: a GPU then need not wait for Python."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Work = Callable[[Tensor, Tensor], tuple[Tensor, ...]]
WARM_UP = 3  # batches that run as usual before the recording: libraries choose their kernels in them


class Recording:
    """`work(x, y)` on a CUDA device: as usual for a few batches, then recorded as a CUDA graph and replayed.

    What `work` leaves behind (gradients, running statistics, sums) it leaves behind in every replay, at the same
    place. `before` runs once before the recording and before each batch that is not replayed. All batches have
    one shape.
    """

    def __init__(self, work: Work, before: Callable[[], None]):
        self.work, self.before, self.seen = work, before, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stream = torch.cuda.Stream()
        self.x = self.y = torch.empty(0)
        self.out: tuple[Tensor, ...] = ()

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        self.seen += 1
        if self.graph is None and self.seen > WARM_UP:
            self.record(x, y)
        if self.graph is None:
            return self.as_usual(x, y)
        assert x.shape == self.x.shape, "a recording is of one shape"
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.out

    def as_usual(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """One batch without the recording, on the stream that will record."""
        self.before()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            out = self.work(x, y)
        torch.cuda.current_stream().wait_stream(self.stream)
        return out

    def record(self, x: Tensor, y: Tensor) -> None:
        """Records the kernels; none of them runs yet."""
        self.x, self.y = x.clone(), y.clone()
        self.before()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self.out = self.work(self.x, self.y)
        self.graph = graph
