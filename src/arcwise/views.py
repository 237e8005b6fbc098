"""A second view of a module in evaluation mode: the same weights, and nobody's mode is switched."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def in_evaluation(module: Module, seen: dict[int, nn.Module] | None = None) -> Module:
    """The module in evaluation mode, as a second view of the same weights: the module itself is left as it is.

    So several threads may encode, and another train, without anybody switching anybody's mode.
    """
    seen = {} if seen is None else seen
    if id(module) not in seen:
        view = seen[id(module)] = object.__new__(type(module))
        view.__dict__.update(module.__dict__)
        children = {name: child and in_evaluation(child, seen) for name, child in module._modules.items()}
        view.__dict__.update(_modules=children, training=False)
    return seen[id(module)]  # type: ignore[return-value]
