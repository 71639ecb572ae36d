"""Accelerators that programs are compiled for on a host that has none.

XLA compiles from a description: libtpu brings those of TPUs, a GPU's is written here. Needs the extra `aot`, in an
environment of its own: beside the CUDA plugin without a driver, a plain `import jax` prints an error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
from typing import Any

for _name, _value in {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
}.items():
    os.environ.setdefault(_name, _value)

from jax.experimental import topologies  # noqa: E402 (JAX reads the variables above)

from tdd.device_kinds import KINDS, DeviceKind  # noqa: E402
from tdd.kernels import platforms  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Target:
    """One kind of accelerator, as XLA knows it.

    Attributes:
      kind: What tdd knows of it.
      topology: libtpu's name of the smallest group of them; "" for a GPU.
      clock: Cycles a second of a TPU's core.
      memory: Bytes of a GPU.
    """

    kind: DeviceKind
    topology: str = ""
    clock: float = 0.0
    memory: int = 0


TARGETS = {
    "v5e": Target(KINDS["v5e"], "v5e:2x2", 1.5e9),
    "v6e": Target(KINDS["v6e"], "v6e:2x2", 1.75e9),
    "tpu7x": Target(KINDS["tpu7x"], "tpu7x:2x2x1", 1.9e9),
    "h100": Target(KINDS["h100"], memory=84_942_979_072),
    "h200": Target(KINDS["h200"], memory=151_397_597_184),
}

_CUDNN = 91_000  # 9.10

_UNITS = {  # XLA's number of a type: (units of a core, operations of a unit a cycle)
    "matrix": {2: 1024, 6: 1024, 10: 512, 11: 256, 12: 32, 16: 512},
    "scalar": {4: (64, 1), 8: (64, 1), 10: (128, 2), 11: (128, 1), 12: (64, 1), 16: (128, 2)},
}


def _hopper(target: Target) -> str:
    """The text form of XLA's `GpuTargetConfigProto` for a Hopper GPU of 132 multiprocessors."""
    matrix = "".join(
        f"rate_infos {{ key: {kind} value {{ clock_rate_ghz: 1.83 units_per_core: 4 ops_per_clock: {rate} }} }}\n"
        for kind, rate in _UNITS["matrix"].items()
    )
    scalar = "".join(
        f"rate_infos {{ key: {kind} value {{ clock_rate_ghz: 1.98 units_per_core: {units} ops_per_clock: {rate} }} }}\n"
        for kind, (units, rate) in _UNITS["scalar"].items()
    )
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  core_count: 132 fpus_per_core: 128 clock_rate_ghz: 1.98 l2_cache_size: 52428800
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: {int(target.kind.bandwidth or 0)} device_memory_size: {target.memory}
  cuda_compute_capability {{ major: 9 feature_extension: ACCELERATED_FEATURES }}
  scalar_unit_description {{ {scalar} }}
  matrix_unit_description {{ {matrix} }}
  device_vendor: "NVIDIA Corporation" platform_version: "Compute Capability 9.0a" device_address_bits: 64
  driver_version: "13.0.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0"
  name: "{target.kind.title}"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{target.kind.title}"
"""


@functools.cache
def _all_accelerators() -> frozenset[str]:
    return frozenset(("gpu", "tpu"))


def _assume_accelerators() -> None:
    """Let programs be traced with what this host lacks: fused kernels, and a GPU and cuDNN, which JAX asks for."""
    from jax._src.lib import cuda_versions

    with contextlib.suppress(ImportError):  # before JAX 0.11
        gpu_info = importlib.import_module("jax._src.pallas.triton.gpu_info")
        hopper = functools.partial(gpu_info.get_gpu_info_from_version, gpu_info.GpuVersion.H100)
        vars(gpu_info)["get_gpu_info"] = hopper
    platforms._accelerators = _all_accelerators
    if cuda_versions is not None:
        vars(cuda_versions)["cudnn_get_version"] = lambda: _CUDNN


def device(name: str) -> Any:
    """A device of this kind, which compiles and cannot run."""
    target = TARGETS[name]
    _assume_accelerators()
    if target.topology:
        return topologies.get_topology_desc(platform="tpu", topology_name=target.topology).devices[0]
    described = topologies.get_topology_desc(
        platform="cuda", topology_name="", target_config=_hopper(target), topology="1x1x1"
    )
    return described.devices[0]
