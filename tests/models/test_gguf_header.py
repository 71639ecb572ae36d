"""Headers of GGUF files: what is there is read, and what a damaged or a hostile file announces is not believed."""

import struct

import gguf_files
import numpy as np
import pytest

from tdd.models.gguf.header import KINDS, read_header
from tdd.validate import InputError

METADATA = {
    "general.architecture": "llama", "number": 7, "real": 0.5, "flag": True, "words": ["a", "", "中"],
    "numbers": np.array([1.5, -2.0], np.float32),
}  # fmt: skip
MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_what_was_written_is_read(tmp_path):
    for version in (2, 3):
        file = gguf_files.write(tmp_path / "file.gguf", METADATA, {"m": (MATRIX, "F16")}, version=version)
        metadata, tensors, data = read_header(file)
        np.testing.assert_array_equal(metadata.pop("numbers"), METADATA["numbers"])
        assert metadata == {name: value for name, value in METADATA.items() if name != "numbers"}
        (tensor,) = tensors.values()
        assert (tensor.shape, tensor.kind.name, tensor.start % gguf_files.ALIGNMENT) == ((2, 3), "F16", 0)
        stored = data[tensor.start : tensor.start + tensor.size].view(np.float16).reshape(2, 3)
        np.testing.assert_array_equal(stored, MATRIX)


def test_types_are_those_of_the_package():
    constants = pytest.importorskip("gguf").constants
    known = {number.value: (number.name, *size) for number, size in constants.GGML_QUANT_SIZES.items()}
    assert {number: known[number] for number in KINDS if number in known} == {
        number: tuple(kind) for number, kind in KINDS.items() if number in known
    }
    assert len(known.keys() & KINDS.keys()) >= 30


def test_every_beginning_of_a_file_is_refused_in_one_line(tmp_path):
    whole = gguf_files.write(tmp_path / "whole.gguf", METADATA, {"m": (MATRIX, "F32")}).read_bytes()
    file = tmp_path / "part.gguf"
    for length in range(len(whole) - 8):  # the last 8 bytes are padding
        file.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"part\.gguf") as error:
            read_header(file)
        assert "\n" not in str(error.value)


def _string(text):
    return struct.pack("<Q", len(text)) + text


def _file(*, entries=(), tensors=(), counts=None, version=3, magic=b"GGUF", data=bytes(64)):
    head = magic + struct.pack("<IQQ", version, *(counts or (len(tensors), len(entries))))
    head += b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


def _tensor(name=b"m", shape=(4,), number=0, start=0):
    return _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, start)


HUGE = 2**63
BROKEN = {
    "another format": (_file(magic=b"PK\x03\x04"), r"begins with b'PK"),
    "version 1": (_file(version=1), "version 1, and versions 2 and 3"),
    "big-endian": (_file(version=3 << 24), "version 3 in big-endian order"),
    "many tensors": (_file(counts=(HUGE, 0)), f"announces {HUGE} tensors"),
    "many entries": (_file(counts=(0, HUGE)), f"announces {HUGE} metadata entries"),
    "a long name": (_file(entries=[struct.pack("<Q", HUGE)]), f"has {HUGE} bytes"),
    "a long string": (_file(entries=[_string(b"a") + struct.pack("<IQ", 8, HUGE)]), f"needs {HUGE} bytes"),
    "a long array": (_file(entries=[_string(b"a") + struct.pack("<IIQ", 9, 10, HUGE)]), f"needs {8 * HUGE} bytes"),
    "many strings": (_file(entries=[_string(b"a") + struct.pack("<IIQ", 9, 8, HUGE)]), f"announces {HUGE} strings"),
    "an array of arrays": (_file(entries=[_string(b"a") + struct.pack("<IIQ", 9, 9, 1)]), "a value of type 9"),
    "a strange value": (_file(entries=[_string(b"a") + struct.pack("<I", 99)]), "a value of type 99"),
    "no UTF-8": (_file(entries=[_string(b"\xff") + struct.pack("<IB", 0, 1)]), "is not UTF-8"),
    "a name of two lines": (_file(tensors=[_tensor(name=b"a\nb")]), "characters that cannot be printed"),
    "an entry twice": (_file(entries=[_string(b"a") + struct.pack("<IB", 0, 1)] * 2), "has a twice"),
    "an alignment of 0": (
        _file(entries=[_string(b"general.alignment") + struct.pack("<II", 4, 0)]), "general.alignment is 0",
    ),
    "no axes": (_file(tensors=[_tensor(shape=())]), "has 0 axes"),
    "many axes": (_file(tensors=[_string(b"m") + struct.pack("<I", 2**32 - 1)]), "has 4294967295 axes"),
    "an empty tensor": (_file(tensors=[_tensor(shape=(0,))]), r"of shape \[0\]"),
    "half a block": (_file(tensors=[_tensor(shape=(16, 2), number=2)]), "cannot be stored as Q4_0"),
    "an unknown type": (_file(tensors=[_tensor(number=77)]), "of type 77"),
    "a huge tensor": (_file(tensors=[_tensor(shape=(HUGE, HUGE, HUGE, HUGE))]), "would end at byte"),
    "a tensor behind the end": (_file(tensors=[_tensor(start=HUGE)]), "would end at byte"),
    "a tensor between places": (_file(tensors=[_tensor(start=4)]), "does not lie at a multiple of 32"),
    "tensors on one another": (_file(tensors=[_tensor(), _tensor(b"n")]), "tensor n overlaps tensor m"),
    "a tensor twice": (_file(tensors=[_tensor(), _tensor(start=32)]), "two tensors of the name m"),
    "nothing": (b"", "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_numbers_of_a_file_are_not_believed(tmp_path, case):
    raw, words = BROKEN[case]
    file = tmp_path / "model.gguf"
    file.write_bytes(raw)
    with pytest.raises(InputError, match=words) as error:
        read_header(file)
    assert "model.gguf" in str(error.value)
    assert len(str(error.value)) < 400


def test_changed_bytes_are_read_or_refused(tmp_path):
    whole = gguf_files.write(tmp_path / "whole.gguf", METADATA, {"m": (MATRIX, "F32")}).read_bytes()
    file, random, refused = tmp_path / "changed.gguf", np.random.default_rng(3), 0
    for _ in range(500):
        changed = bytearray(whole)
        for place in random.integers(0, len(whole), 3):
            changed[place] = random.integers(256)
        file.write_bytes(changed)
        try:
            read_header(file)
        except InputError:
            refused += 1
    assert 100 < refused < 500
