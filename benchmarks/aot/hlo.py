"""Reads a compiled HLO module: what runs how often, what it moves and computes, and how long that may take.

The time is an estimate for ranking programs, not a measurement. On a GPU each instruction outside a fusion is one
kernel, which takes the largest of: its bytes over the bandwidth, its flops over the rate of their type, and one launch.
On a TPU it is the sum of the cycles that the compiler states itself. It states none of a kernel written in Pallas and
does not show its products: the fused head takes the time of its flops and then of the instructions that its compiled
code spends on a logit (`LOGIT`); splash attention takes that of the bundles of its compiled code.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jax.interpreters import partial_eval

from tdd.device_kinds import DeviceKind

LAUNCH = 2.5e-6
"""Seconds of a kernel that does nothing."""
WAIT = 15e-6
"""Seconds of a loop's condition that the host reads."""
REACHED_BANDWIDTH = 0.85
RATES = {"bf16": 790e12, "f16": 790e12, "f32": 400e12, "f32 exact": 50e12, "f64": 50e12}
"""flop/s that matrix products reach on a Hopper GPU, by the type of their factors; f32 is TF32."""
LOGIT = {"gpu": 26 / 29.6e12, "fused_token_stats": 5 / 1024, "splash_mha": 8.2 / 1024}
"""Of one logit beside its product: seconds on a GPU, 26 instructions of PTX on 132 x 128 lanes at 1.755 GHz; cycles
on a TPU, bundles of a v5e's final schedule, where splash attention's hold its products too."""

_WIDTHS = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "s64": 8, "u64": 8, "f64": 8, "c64": 8}
_STRUCTURE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier", "domain"}
_CONTROL = {"while", "conditional", "call", "async-start", "async-done", "copy-start", "copy-done", "add-dependency"}
_NOT_RUN = _STRUCTURE | _CONTROL | {"partition-id", "replica-id"}
_ALLOWED_CALLS = re.compile(
    r"^(__cublas|__cudnn|__cub\$|__triton|(__gpu\$)?xla\.gpu|Sharding|AssumeGatherIndicesInBound|tpu_|ConcatBitcast|GatherScatterIndices|AllocateBuffer|PrepareAsyncCall)|^$"
)


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    shape: str
    op: str
    operands: tuple[str, ...]
    rest: str


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a compiled program is expected to do; times in seconds, sizes in bytes."""

    temporary: int
    arguments: int
    fits: bool
    seconds: float
    launch_seconds: float
    launches: float
    waits: float
    flops: float
    share_of_peak: float
    has_f64: bool
    foreign_calls: tuple[str, ...]


class Module:
    """A module's computations and how often each runs.

    Args:
      text: As `compiled.as_text()` prints it.
      trips: How often a loop runs whose number of steps the compiler does not know.
    """

    def __init__(self, text: str, trips: float = 1.0) -> None:
        self.text = text
        self.computations, entry = _computations(text)
        self.runs: dict[str, float] = {}
        self.waits = 0.0
        self._visit(entry, 1.0, trips)

    def _visit(self, name: str | None, times: float, trips: float) -> None:
        if name not in self.computations:
            return
        self.runs[name] = self.runs.get(name, 0.0) + times
        for one in self.computations[name].values():
            if one.op == "while":
                known = re.search(r'known_trip_count"?:\s*\{"n":"(\d+)"', one.rest)
                steps = float(known.group(1)) if known else self._bound(_called(one, "condition"))
                if steps is None:
                    self.waits += times * trips
                self._visit(_called(one, "body"), times * (trips if steps is None else steps), trips)
            elif one.op == "conditional":  # the first branch: where the condition of `lax.cond` is false
                listed = re.search(r"branch_computations=\{%?([\w.\-]+)", one.rest)
                self._visit(listed.group(1) if listed else _called(one, "false_computation"), times, trips)
            elif one.op in ("call", "async-start"):
                self._visit(_called(one, "to_apply") or _called(one, "calls"), times, trips)

    def _bound(self, condition: str | None) -> float | None:
        """N of a condition `i < N` with a constant N."""
        body = self.computations.get(condition or "", {})
        constants = [one for one in body.values() if one.op == "constant" and re.match(r"[su]\d+\[\]", one.shape)]
        compared = "direction=LT" in "".join(one.rest for one in body.values()) or any(
            "direction=LT" in inner.rest
            for one in body.values()
            for inner in self.computations.get(_called(one, "calls") or "", {}).values()
        )
        return float(constants[0].operands[0]) if compared and len(constants) == 1 else None

    def running(self) -> Iterator[tuple[float, Mapping[str, Instruction], Instruction]]:
        """(times, computation, instruction) of everything that runs by itself."""
        for name, times in self.runs.items():
            computation = self.computations[name]
            for one in computation.values():
                if one.op == "fusion-done":  # in its own time, of the shape that arrives
                    started = computation[one.operands[0]]
                    yield times, computation, started._replace(op="fusion", shape=one.shape)
                elif one.op not in _NOT_RUN and one.op != "fusion-start":
                    yield times, computation, one

    def traffic(self, computation: Mapping[str, Instruction], one: Instruction) -> float:
        """Bytes that an instruction reads and writes; a slice or an update in place counts what it touches."""
        sizes = [_bytes(computation[name].shape) if name in computation else 0.0 for name in one.operands]
        if one.op == "dynamic-update-slice":
            return 2 * sizes[1]
        if one.op in ("dynamic-slice", "gather", "slice", "copy", "transpose"):
            return 2 * _bytes(one.shape)
        if one.op != "fusion":
            return _bytes(one.shape) + sum(sizes)
        body = self.computations.get(_called(one, "calls") or "", {})
        read = in_place = 0.0
        for inner in body.values():
            if inner.op != "parameter" or int(inner.operands[0]) >= len(sizes):
                continue
            size, users = sizes[int(inner.operands[0])], _users(body, inner.name)
            if users and all(user.op in ("dynamic-slice", "gather", "slice") for user in users):
                read += min(size, sum(_bytes(user.shape) for user in users))
            elif users and all(user.op in ("dynamic-update-slice", "dynamic-slice", "scatter") for user in users):
                in_place += size
                read += sum(_bytes(user.shape) for user in users if user.op == "dynamic-slice")
            else:
                read += size
        updates = [body[inner.operands[1]] for inner in body.values() if inner.op == "dynamic-update-slice"]
        written = max(_bytes(one.shape) - in_place, 0.0)
        return read + written + (2 * sum(_bytes(update.shape) for update in updates) if in_place else 0.0)

    def products(self, computation: Mapping[str, Instruction], one: Instruction) -> tuple[float, str]:
        """Flops of the matrix products in an instruction, and the type of their factors."""
        if one.op == "dot" or (one.op == "custom-call" and re.search("gemm|matmul", one.rest)):
            left = computation.get(one.operands[0])
            found = re.search(r"lhs_contracting_dim(?:ension)?s\"?[=:][\{\[]([\d,\"]*)[\}\]]", one.rest)
            if left is None or found is None:
                return 0.0, ""
            kind, sizes = _dims(left.shape)
            depth = 1
            for axis in re.findall(r"\d+", found.group(1)):
                depth *= sizes[int(axis)]
            count = 1
            for size in _dims(one.shape)[1]:
                count *= size
            parts = re.search(r"dot_bf16_bf16_f32_x(\d)", one.rest)
            if parts:
                return 2.0 * count * depth * int(parts.group(1)), "bf16"
            exact = kind == "f32" and re.search(r"highest|HIGHEST|dot_f32_f32_f32", one.rest)
            return 2.0 * count * depth, "f32 exact" if exact else kind
        if one.op == "custom-call" and "fmha" in one.rest:  # two products of [B, T, H, d] over the visible half
            _, shape = _dims(computation[one.operands[0]].shape)
            times, kind = (5, "bf16") if "Backward" in one.rest else (2, "bf16")
            batch, length, heads, width = shape if len(shape) == 4 else (1, 0, 0, 0)
            return times * batch * heads * length * length * float(width), kind
        if one.op == "custom-call" and "fused_token_stats" in one.rest:
            (kind, (rows, width)), (_, (columns, _)) = (_dims(computation[one.operands[i]].shape) for i in (1, -1))
            return 2.0 * rows * width * columns, kind
        if one.op == "fusion":
            body = self.computations.get(_called(one, "calls") or "", {})
            found = [self.products(body, inner) for inner in body.values() if inner.op in ("dot", "fusion")]
            total = sum(flops for flops, _ in found)
            return total, next((kind for flops, kind in found if flops), "")
        return 0.0, ""

    def logits(self, computation: Mapping[str, Instruction], one: Instruction) -> tuple[str, float]:
        """The kernel written in Pallas that an instruction calls, and how many logits it makes; "" and 0 of others."""
        if one.op != "custom-call" or (found := re.search("fused_token_stats|splash_mha", one.rest)) is None:
            return "", 0.0
        if found.group() == "fused_token_stats":
            (_, (rows, _)), (_, (columns, _)) = (_dims(computation[one.operands[i]].shape) for i in (1, -1))
            return found.group(), float(rows * columns)
        shapes = re.findall(r"bf16\[(\d+),(\d+),(\d+),\d+\]", one.shape)  # [B, H, T, d], of a gradient with G heads
        batch, heads, length = max(tuple(map(int, shape)) for shape in shapes)
        backward = 1.0 if "splash_mha_fwd" in one.rest else 2.5
        return found.group(), backward * batch * heads * length * (length + 512) / 2  # blocks of 512


def facts(compiled: Any, kind: DeviceKind, trips: float = 1.0, flops: float | None = None, clock: float = 0.0) -> Facts:
    """What `compiled` is expected to do; `flops` are those of the program as written, or else of what was compiled."""
    if kind.memory is None or kind.bandwidth is None or kind.peak is None:
        raise ValueError(f"the memory, bandwidth and peak of {kind} are not known")
    memory, text = compiled.memory_analysis(), compiled.as_text()
    module = Module(text, trips)
    seconds = launch_seconds = launches = counted = 0.0
    for times, computation, one in module.running():
        launches += times
        done, factors = module.products(computation, one)
        counted += times * done
        name, logits = module.logits(computation, one)
        if kind.platform == "tpu":
            if name:
                passes = 6 if factors == "f32" else 1
                seconds += times * (passes * done / kind.peak + LOGIT[name] * logits / clock)
                continue
            cycles = re.search(r'"estimated_cycles":"(\d+)"', one.rest)
            seconds += times * int(cycles.group(1)) / clock if cycles else 0.0
            continue
        moved = module.traffic(computation, one) / (REACHED_BANDWIDTH * kind.bandwidth)
        computed = done / RATES.get(factors, RATES["f32 exact"]) + LOGIT["gpu"] * logits
        longest = max(moved, computed, LAUNCH)
        seconds += times * longest
        launch_seconds += times * LAUNCH * (longest == LAUNCH)
    waits = module.waits if kind.platform == "gpu" else 0.0
    seconds += waits * WAIT
    total = counted if flops is None else flops
    arguments = memory.argument_size_in_bytes
    needed = arguments + memory.temp_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    calls = set(re.findall(r'custom_call_target="([^"]*)"', text))
    return Facts(
        temporary=memory.temp_size_in_bytes,
        arguments=arguments,
        fits=needed <= kind.memory,
        seconds=seconds,
        launch_seconds=launch_seconds,
        launches=launches,
        waits=waits,
        flops=total,
        share_of_peak=total / kind.peak / seconds if seconds else 0.0,
        has_f64=bool(re.search(r"\bf64\[", text)),
        foreign_calls=tuple(sorted(call for call in calls if not _ALLOWED_CALLS.match(call))),
    )


def without_dead_code(jaxpr: Any) -> Any:
    """The program without what no output needs, such as gradients of weights beside their norms."""
    return partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0]


def written_flops(jaxpr: Any, trips: float = 1.0) -> float:
    """Flops of the matrix products of a program as written, loops counted; a `while` runs `trips` times."""
    total = 0.0
    for equation in jaxpr.eqns:
        params = equation.params
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            depth = 1
            for axis in contracted:
                depth *= equation.invars[0].aval.shape[axis]
            total += 2.0 * equation.outvars[0].aval.size * depth
        elif equation.primitive.name == "scan":
            total += params["length"] * written_flops(params["jaxpr"].jaxpr, trips)
        elif equation.primitive.name == "while":
            total += trips * written_flops(params["body_jaxpr"].jaxpr, trips)
        elif equation.primitive.name == "cond":
            total += max(written_flops(branch.jaxpr, trips) for branch in params["branches"])
        else:
            inner = (getattr(value, "jaxpr", value) for value in params.values())
            total += sum(written_flops(one, trips) for one in inner if hasattr(one, "eqns"))
    return total


def _computations(text: str) -> tuple[dict[str, dict[str, Instruction]], str]:
    """Every computation's instructions, by name, and the entry's name."""
    found: dict[str, dict[str, Instruction]] = {}
    entry, current = "", ""
    for line in text.splitlines():
        opened = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line)
        if opened:
            current = opened.group(2)
            found[current] = {}
            entry = current if opened.group(1) else entry
            continue
        assigned = re.match(r"\s+(?:ROOT )?%?([\w.\-]+) = (.*)$", line)
        one = _instruction(*assigned.groups()) if assigned and current else None
        if one is not None:
            found[current][one.name] = one
    return found, entry


def _instruction(name: str, text: str) -> Instruction | None:
    """`shape op(operands), attributes`."""
    if text.startswith("("):
        end = _closing(text, 0) + 1
        shape, text = text[:end], text[end:].lstrip()
    else:
        shape, _, text = text.partition(" ")
    opened = re.match(r"([\w\-]+)\(", text)
    if opened is None:
        return None
    end = _closing(text, opened.end() - 1)
    inside = text[opened.end() : end]
    literal = opened.group(1) in ("parameter", "constant")
    operands = (inside.strip(),) if literal else tuple(re.findall(r"%([\w.\-]+)", inside))
    return Instruction(name, shape, opened.group(1), operands, text[end + 1 :])


def _closing(text: str, start: int) -> int:
    """Place of the parenthesis that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    return len(text)


def _called(one: Instruction, key: str) -> str | None:
    found = re.search(key + r"=%?([\w.\-]+)", one.rest)
    return found.group(1) if found else None


def _users(body: Mapping[str, Instruction], name: str) -> list[Instruction]:
    """Instructions that use a value, through bitcasts."""
    users = [one for one in body.values() if name in one.operands]
    return [u for one in users for u in (_users(body, one.name) if one.op in ("bitcast", "reshape") else [one])]


def _dims(shape: str) -> tuple[str, list[int]]:
    found = re.search(r"([a-z]\w*)\[([\d,]*)\]", shape)
    assert found is not None, shape
    return found.group(1), [int(size) for size in found.group(2).split(",") if size]


def _bytes(shape: str) -> float:
    total = 0.0
    for kind, sizes in re.findall(r"([a-z]\w*)\[([\d,]*)\]", shape):
        count = 1
        for size in sizes.split(","):
            count *= int(size) if size else 1
        total += count * _WIDTHS.get(kind, 4)
    return total
