"""The loops of `selective_scan` over a tile of positions, compiled for CPUs.

Each call is for some of the pairs of a sequence and a group of channels, pair number sequence *
groups + group, so that calls may run side by side: none writes where another one does. Numbers are
real or complex, in single or double precision. Inner loops go over the channels of a group, which
are last in memory, and index by nothing else, as they would not vectorise otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_compiled = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
"""Sums may be reordered, so that loops vectorise; NaN and infinities keep their meaning."""

Array = np.ndarray[Any, np.dtype[Any]]


@_compiled
def run_tile(  # noqa: PLR0917 (compiled functions take positional arguments alone)
    pairs: tuple[int, int],
    start: int,
    decay: Array,
    inputs: tuple[Array, Array],
    maps: tuple[Array, Array, Array],
    state: Array,
    y: Array,
) -> None:  # pragma: no cover (compiled)
    """Run the states over a tile, and write the results to y.

    Args:
        pairs: the first one, and the one behind the last.
        start: first position of the tile.
        decay: (batch, tile, groups, states, size), exp(dt A).
        inputs: x and dt, (batch, length, groups, size).
        maps: B and C, (batch, length, groups, states), and what is added to B, (groups, states,
            size).
        state: (batch, groups, states, size), before the tile, and afterwards behind it.
        y: (batch, length, groups, size), written.
    """
    (x, step), (into, out, bias) = inputs, maps
    groups, size = x.shape[2:]
    added = np.empty(size, x.dtype)
    total = np.empty(size, x.dtype)
    for pair in range(pairs[0], pairs[1]):
        b, group = pair // groups, pair % groups
        for k in range(decay.shape[1]):
            t = start + k
            for i in range(size):
                added[i] = step[b, t, group, i] * x[b, t, group, i]
                total[i] = 0
            for n in range(decay.shape[3]):
                entry, exit_ = into[b, t, group, n], out[b, t, group, n]
                for i in range(size):
                    entering = added[i] * (entry + bias[group, n, i])
                    here = decay[b, k, group, n, i] * state[b, group, n, i] + entering
                    state[b, group, n, i] = here
                    total[i] += (here * exit_).real
            for i in range(size):
                y[b, t, group, i] = total[i]


@_compiled
def _remember(  # noqa: PLR0917 (compiled functions take positional arguments alone)
    before: Array,
    place: tuple[int, int, int],
    decay: Array,
    inputs: tuple[Array, Array],
    maps: tuple[Array, Array],
    state: Array,
) -> None:  # pragma: no cover (compiled)
    """Write the states before and behind each position of a tile: (tile + 1, states, size)."""
    (x, step), (into, bias) = inputs, maps
    b, group, start = place
    size = x.shape[3]
    added = np.empty(size, x.dtype)
    # Numba needs seconds to compile the error message of a slice assignment.
    for n in range(decay.shape[3]):
        for i in range(size):
            before[0, n, i] = state[b, group, n, i]
    for k in range(decay.shape[1]):
        t = start + k
        for i in range(size):
            added[i] = step[b, t, group, i] * x[b, t, group, i]
        for n in range(decay.shape[3]):
            entry = into[b, t, group, n]
            for i in range(size):
                entering = added[i] * (entry + bias[group, n, i])
                before[k + 1, n, i] = decay[b, k, group, n, i] * before[k, n, i] + entering


@_compiled
def run_tile_back(  # noqa: PLR0917 (compiled functions take positional arguments alone)
    pairs: tuple[int, int],
    start: int,
    decay: Array,
    inputs: tuple[Array, Array, Array],
    maps: tuple[Array, Array, Array, Array],
    state: Array,
    to_inputs: tuple[Array, Array],
    to_maps: tuple[Array, Array, Array, Array],
    to_state: Array,
) -> None:  # pragma: no cover (compiled)
    """Compute the gradients of a tile.

    Args:
        pairs: as for `run_tile`, and so start and decay.
        inputs: as for `run_tile`, and the gradients of y.
        maps: as for `run_tile`, and A, (groups, states, size).
        state: (batch, groups, states, size), before the tile.
        to_inputs: gradients of x and dt, written.
        to_maps: gradients of B and C, written, and for each sequence of what is added to B and of
            A, (batch, groups, states, size), added to.
        to_state: (batch, groups, states, size), gradients of the states behind the tile, and
            afterwards of those before it.
    """
    (x, step, to_y), (into, out, bias, poles) = inputs, maps
    (to_x, to_step), (to_into, to_out, to_bias, to_poles) = to_inputs, to_maps
    groups, size = x.shape[2:]
    tile, states = decay.shape[1], decay.shape[3]
    before = np.empty((tile + 1, states, size), decay.dtype)
    here = np.empty(size, decay.dtype)
    added = np.empty(size, x.dtype)
    to_added = np.empty(size, x.dtype)
    to_dt = np.empty(size, x.dtype)
    for pair in range(pairs[0], pairs[1]):
        b, group = pair // groups, pair % groups
        _remember(before, (b, group, start), decay, (x, step), (into, bias), state)
        for k in range(tile - 1, -1, -1):
            t = start + k
            for i in range(size):
                added[i] = step[b, t, group, i] * x[b, t, group, i]
                to_added[i] = 0
                to_dt[i] = 0
            for n in range(states):
                entry, exit_ = into[b, t, group, n], np.conj(out[b, t, group, n])
                to_entry, to_exit = entry * 0, entry * 0
                # Several loops, as one that writes all these arrays would not vectorise.
                for i in range(size):
                    here[i] = to_state[b, group, n, i] + to_y[b, t, group, i] * exit_
                for i in range(size):
                    to_exit += to_y[b, t, group, i] * np.conj(before[k + 1, n, i])
                    to_entry += added[i] * here[i]
                for i in range(size):
                    to_bias[b, group, n, i] += added[i] * here[i]
                for i in range(size):
                    to_added[i] += (here[i] * np.conj(entry + bias[group, n, i])).real
                for i in range(size):
                    here[i] *= np.conj(decay[b, k, group, n, i])
                    to_state[b, group, n, i] = here[i]
                for i in range(size):
                    here[i] *= np.conj(before[k, n, i])
                    to_dt[i] += (here[i] * np.conj(poles[group, n, i])).real
                for i in range(size):
                    to_poles[b, group, n, i] += step[b, t, group, i] * here[i]
                to_into[b, t, group, n] = to_entry
                to_out[b, t, group, n] = to_exit
            for i in range(size):
                to_x[b, t, group, i] = step[b, t, group, i] * to_added[i]
                to_step[b, t, group, i] = to_dt[i] + x[b, t, group, i] * to_added[i]
