"""The least concave majorant of points in the plane: the upper chain of their convex hull."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tdd.kernels import platforms

__all__ = ["concave_majorant"]


def concave_majorant(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The segment of the least concave majorant to the left of every point.

    Args:
      x: [s] abscissae, ascending.
      y: [s] int32 or floating ordinates, ascending. Of points with one abscissa the last counts; no two of them may
        be equal, except at the first and the last abscissa.

    Returns: left, right [s] int32: indices of the vertices with x[left] < x[i] <= x[right], consecutive on the
    majorant. For points at x[0], left is the first and right the last index of that abscissa. Points that lie on an
    edge up to rounding may or may not be vertices.
    Cost: on CPU one pass of 2 s steps with a stack; elsewhere O(s log^2 s) in O(log^2 s) steps.
    """
    size = x.shape[0]
    index = jnp.arange(size, dtype=jnp.int32)
    if size == 0:
        return index, index
    vertex = jax.lax.platform_dependent(x, y.astype(x.dtype), cpu=_by_stack, default=by_merging)
    at_or_after = platforms.cummin(jnp.where(vertex, index, size - 1), reverse=True)
    # Tied points lie left of the vertex that ends their group, and right of the one before it.
    right = at_or_after[jnp.searchsorted(x, x, side="right") - 1]
    before = platforms.cummax(jnp.where(vertex, index, 0))
    left = jnp.concatenate([jnp.zeros(1, jnp.int32), before[:-1]])[right]
    return left, right


def _by_stack(x: jax.Array, y: jax.Array) -> jax.Array:
    """Whether each point is a vertex, [s] bool: one point after the other."""
    size = x.shape[0]

    def step(_, state):
        stack, depth, last, before, i = state
        new = jnp.minimum(i, size - 1)
        pop = (i < size) & (depth >= 2) & _under(x, y, before, last, new)
        push = (i < size) & ~pop
        # Written before it is read, so that the stack stays in place: its top two are carried beside it.
        stack = jax.lax.dynamic_update_index_in_dim(stack, new, jnp.where(push, depth, size), 0)
        depth = depth + push.astype(jnp.int32) - pop.astype(jnp.int32)
        below = jnp.where(push, last, stack[jnp.maximum(depth - 2, 0)])
        last = jnp.where(push, new, jnp.where(pop, before, last))
        return stack, depth, last, jnp.where(push | pop, below, before), i + push.astype(jnp.int32)

    zero = jnp.int32(0)
    start = jnp.zeros(size + 1, jnp.int32), zero, zero, zero, zero  # the last entry takes what is not pushed
    stack, depth, *_ = jax.lax.fori_loop(0, 2 * size, step, start)
    return _marked(stack, depth, size)


def by_merging(x: jax.Array, y: jax.Array) -> jax.Array:
    """As `_by_stack`: the chains of neighbouring blocks are joined by their common tangent, all blocks at once.

    From each vertex of the left chain a binary search finds where its tangent touches the right one. The tangent
    that no vertex of the left chain exceeds joins the two.
    """
    size = x.shape[0]
    length = 1 << (size - 1).bit_length()
    # Copies of the last point fill the last block; of equal points a chain keeps the last.
    x, y = (jnp.pad(values, (0, length - size), mode="edge") for values in (x, y))
    chain, count = jnp.arange(length, dtype=jnp.int32)[:, None], jnp.ones(length, jnp.int32)
    take = lambda rows, places: jnp.take_along_axis(rows, places, axis=1)  # noqa: E731
    width = 1
    while width < length:
        (left, right), (num_left, num_right) = (
            chain.reshape(-1, 2, width).swapaxes(0, 1),
            count.reshape(-1, 2, 1).swapaxes(0, 1),
        )

        def halve(_, bounds, left=left, right=right, num_right=num_right, width=width):
            low, high = bounds
            middle = (low + high) // 2
            following = take(right, jnp.minimum(middle + 1, width - 1))
            onward = (middle + 1 < num_right) & _under(x, y, left, take(right, middle), following)
            return jnp.where(onward, middle + 1, low), jnp.where(onward, high, middle)

        bounds = jnp.zeros_like(left), jnp.broadcast_to(num_right - 1, left.shape)
        touched, _ = jax.lax.fori_loop(0, width.bit_length() - 1, halve, bounds)
        place = jnp.arange(2 * width, dtype=jnp.int32)[None]
        follower = jnp.roll(left, -1, axis=1)
        above = (place[:, :width] + 1 < num_left) & ~_under(x, y, left, follower, take(right, touched))
        last = jnp.sum(above, axis=1, keepdims=True, dtype=jnp.int32)
        first = take(touched, last)
        of_right = take(right, jnp.clip(first + place - last - 1, 0, width - 1))
        chain = jnp.where(
            place <= last, take(left, jnp.broadcast_to(jnp.minimum(place, width - 1), of_right.shape)), of_right
        )
        count = (last + 1 + num_right - first)[:, 0]
        width *= 2
    return _marked(jnp.minimum(chain[0], size - 1), count[0], size)


def _marked(chain: jax.Array, count: jax.Array, size: int) -> jax.Array:
    """True at the first `count` indices of a chain, [size] bool."""
    index = jnp.arange(chain.shape[0], dtype=jnp.int32)
    return jnp.zeros(size, bool).at[jnp.where(index < count, chain, size)].set(True, mode="drop")


def _under(x: jax.Array, y: jax.Array, first: jax.Array, second: jax.Array, third: jax.Array) -> jax.Array:
    """Whether the second of three points, in order, lies on or under the line through the others."""
    return (y[second] - y[first]) * (x[third] - x[second]) <= (y[third] - y[second]) * (x[second] - x[first])
