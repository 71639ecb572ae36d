"""Kinds of hostile trials inside one process: folders of models, values of calls, answers of services, pictures.

`hostile.py` runs them, each in a child: python tests/machines/hostile_inputs.py KIND FOLDER SEED COUNT prints a line
of JSON for each trial.
"""

import base64
import contextlib
import decimal
import fractions
import html
import io
import json
import math
import os
import pathlib
import random
import resource
import signal
import socket
import struct
import sys
import threading
import time
import urllib.parse

WALL_S = 180
ODD_VALUES = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    2**31,
    2**63,
    -(2**31),
    10**400,
    0.5,
    -0.5,
    1e30,
    1e-40,
    math.nan,
    math.inf,
    "",
    "x",
    "\x00",
    "\x1b[2J",
    "\u202e",
    "\ud800",
    "../..",
    "%s",
    "{0}",
    "9" * 5_000,
    [],
    {},
    [[]],
    [None],
    {"a": 1},
)


def printable(text):
    """A name of a trial in one line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Trial:
    """One trial as it is printed; used in a with statement that catches whatever a trial may end with."""

    def __init__(self, name):
        self.said = {"name": printable(name)}

    def __enter__(self):
        self.started_s = time.process_time()
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/self/clear_refs").write_text("5")
        signal.alarm(WALL_S)
        return self.said

    def __exit__(self, kind, error, trace):
        signal.alarm(0)
        if error is not None:
            text = str(error)
            if type(error).__name__ == "InputError":
                self.said["refused"] = True
                if "\n" in text or not text.isprintable():
                    self.said["wrong"] = f"not one line: {text[:300]!r}"
            else:
                self.said["wrong"] = f"{type(error).__name__}: {text[:300]}"
        self.said["seconds"] = time.process_time() - self.started_s
        self.said["size"] = peak()
        print(json.dumps(self.said), flush=True)
        return True


def peak():
    """Bytes of the largest resident size since it was last set back."""
    with contextlib.suppress(OSError, IndexError):
        status = pathlib.Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# Folders of models


def write_model(family, folder):
    """A small checkpoint of a decoder, an encoder with a decoder, or a model of images."""
    import family_files
    import t5_files
    import vision_files

    if family == "t5":
        return t5_files.write_t5(folder)
    if family == "llava":
        return vision_files.write(folder, "llava-1.5")
    return family_files.write(folder, family)[0]


def computed(family, folder):
    """Logits of tdd on fixed tokens."""
    import jax
    import numpy as np

    from tdd.models import t5, vision
    from tdd.models.checkpoint import load

    if family == "t5":
        spec, params, tokenizer = t5.load_t5(folder)
        tokenizer("1 2 3")
        source = np.arange(2, 14, dtype=np.int32)[None]
        found = jax.jit(t5.logits, static_argnums=0)(spec, params, source, source > 0, source[:, :7])
    elif family == "llava":
        import vision_files

        model = vision.load_vision_language(folder)
        model.tokenizer("1 2 3")
        tokens, images = vision_files.tokens(9)[:1], vision_files.images()[:1]
        features = vision.image_features(model.spec, model.params, images)
        found = vision.logits(model.spec, model.params, tokens, features)
    else:
        lm, params, tokenizer = load(folder)
        tokenizer("1 2 3")
        found = lm.logits(params, np.arange(2, 14, dtype=np.int32)[None])
    return np.asarray(found, np.float64)


def of_transformers(family, folder):
    """The same logits by transformers; None if it refuses the folder, or makes up a parameter."""
    import torch
    import transformers

    kinds = {"t5": "T5ForConditionalGeneration", "llava": "LlavaForConditionalGeneration"}
    kind = getattr(transformers, kinds.get(family, "AutoModelForCausalLM"))
    try:
        model, told = kind.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, local_files_only=True
        )
        if told["missing_keys"] or told["mismatched_keys"]:
            return None
        ids = torch.arange(2, 14)[None]
        with torch.no_grad():
            if family == "t5":
                found = model(input_ids=ids, decoder_input_ids=ids[:, :7])
            elif family == "llava":
                import vision_files

                tokens = torch.tensor(vision_files.tokens(9)[:1], dtype=torch.long)
                found = model(input_ids=tokens, pixel_values=torch.tensor(vision_files.images()[:1]))
            else:
                found = model(input_ids=ids)
        return found.logits.numpy().astype("float64")
    except Exception:  # whatever it is, there is nothing to compare with
        return None


def changed_folder(folder, rng):
    """Change a value of a file of JSON, or bytes of the weights; says what."""
    names = ["config.json"] * 4 + ["tokenizer.json"] * 2 + ["tokenizer_config.json"] + ["model.safetensors"] * 3
    place = folder / rng.choice(names)
    if place.suffix == ".json":
        return f"{place.name}: {changed_json(place, rng)}"
    raw = bytearray(place.read_bytes())
    (length,) = struct.unpack_from("<Q", raw)
    how = rng.choice(("cut", "length", "header", "header", "header", "empty"))
    if how == "cut":
        raw = raw[: rng.randrange(len(raw))]
    elif how == "empty":
        raw = bytearray()
    elif how == "length":
        struct.pack_into("<Q", raw, 0, rng.choice((0, 1, length - 1, length + 1, 2**31, 2**63, 2**64 - 1, 10**8)))
    else:
        header = json.loads(raw[8 : 8 + length])
        name = rng.choice(sorted({*header} - {"__metadata__"}))
        entry = header[name]
        start, stop = entry["data_offsets"]
        do = rng.choice(("dtype", "shape", "start", "stop", "gone", "renamed", "odd"))
        if do == "dtype":
            entry["dtype"] = rng.choice(("F16", "F64", "I32", "BOOL", "F8_E4M3", "X", "", None, 3))
        elif do == "shape":
            entry["shape"] = rng.choice(([], [0], [-1], [2**40, 2**40], entry["shape"][::-1], [[1]], None, "x"))
        elif do == "start":
            entry["data_offsets"] = [rng.choice((0, start - 4, start + 4, stop, -1, 2**63)), stop]
        elif do == "stop":
            entry["data_offsets"] = [start, rng.choice((0, stop - 4, stop + 4, start, -1, 2**63))]
        elif do == "gone":
            del header[name]
        elif do == "renamed":
            header[rng.choice(("x", "", "\x1b[2J", "a" * 10_000, "../x"))] = header.pop(name)
        else:
            header[name] = rng.choice(ODD_VALUES)
        new = json.dumps(header).encode()
        raw = bytearray(struct.pack("<Q", len(new)) + new + bytes(raw[8 + length :]))
        how = f"{do} of {name}"
    place.write_bytes(raw)
    return f"{place.name}: {how}"


def changed_json(place, rng):
    """Change a file of JSON; says how."""
    how = rng.choice(("value", "value", "value", "value", "gone", "cut", "deep", "bomb"))
    value = json.loads(place.read_text("utf-8"))
    if how in ("value", "gone"):
        spots = list(paths(value))
        *path, last = rng.choice(spots)
        parent = value
        for key in path:
            parent = parent[key]
        if how == "gone":
            del parent[last]
        else:
            old = parent[last]
            around = [old * 2, old + 1, -old] if isinstance(old, int | float) else []
            parent[last] = rng.choice([*ODD_VALUES, *around])
            how = f"{'.'.join(map(str, (*path, last)))[:60]} = {repr(parent[last])[:40]}"
        place.write_text(json.dumps(value), "utf-8")
    elif how == "cut":
        text = place.read_text("utf-8")
        place.write_text(text[: rng.randrange(len(text))], "utf-8")
    elif how == "deep":
        place.write_text("[" * 100_000 + "]" * 100_000)
    else:
        part = rng.choice(
            (
                {"type": "Replace", "pattern": {"String": "1"}, "content": "2" * 10**6},
                {
                    "type": "Sequence",
                    "normalizers": [{"type": "Replace", "pattern": {"Regex": "."}, "content": "2 " * 200}] * 4,
                },
                {"type": "Prepend", "prepend": "3 " * 10**6},
                {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xff" * 5_000).decode()},
                {"type": "Replace", "pattern": {"Regex": "(a*)*b"}, "content": ""},
            )
        )
        value[rng.choice(("normalizer", "decoder"))] = part
        place.write_text(json.dumps(value), "utf-8")
        how = f"a {part['type']} of {len(json.dumps(part)):,} bytes"
    return how


def paths(value, above=()):
    """Every place in a value of JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield (*above, key)
        yield from paths(below, (*above, key))


def inside_models(folder, seed, count):
    """Folders of T5, of LLaVA and of decoders with a changed file; transformers' logits are what is right."""
    import shutil

    import numpy as np
    import transformers

    transformers.logging.set_verbosity_error()
    rng = random.Random(seed)
    family = ("t5", "llava", "llama", "gpt2", "mixtral")[seed % 5]
    whole = write_model(family, folder / f"whole-{seed}")
    for number in range(count):
        damaged = folder / f"damaged-{seed}-{number}"
        shutil.copytree(whole, damaged)
        how = changed_folder(damaged, rng)
        found = None
        with Trial(f"{family}: {how}") as said:
            found = computed(family, damaged)
            expected = of_transformers(family, damaged)
            if expected is not None and np.isfinite(expected).all():
                if found.shape != expected.shape:
                    said["wrong"] = f"logits of shape {found.shape}; transformers' have {expected.shape}"
                elif not np.abs(found - expected).max() <= 1e-3 * (1 + np.abs(expected).max()):
                    said["wrong"] = f"logits differ from transformers' by {np.abs(found - expected).max():.2g}"
                else:
                    said["compared"] = True
        shutil.rmtree(damaged)


# Answers of services


KEY = "sk-Ab+/9=x&Yq<7"
"""A key with characters that every kind of text escapes in its own way."""


def spellings(rng):
    """The key as a service may spell it."""
    found = [
        KEY,
        KEY.upper(),
        KEY.lower(),
        json.dumps(KEY),
        "".join(f"\\u{ord(c):04x}" for c in KEY),
        "".join(f"\\\\u{ord(c):04X}" for c in KEY),
        "".join(f"\\x{ord(c):02x}" for c in KEY),
        urllib.parse.quote(KEY, ""),
        "".join(f"%{ord(c):02X}" for c in KEY),
        urllib.parse.quote(urllib.parse.quote(KEY, ""), ""),
        html.escape(KEY),
        "".join(f"&#{ord(c)};" for c in KEY),
        "".join(f"&#x{ord(c):X}" for c in KEY),
        "".join(f"&amp;#{ord(c)};" for c in KEY),
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(b"Bearer " + KEY.encode()).decode(),
        base64.b64encode(b"x" + KEY.encode() + b"yz").decode(),
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
        "\n".join(KEY),
        "\\n".join(KEY),
        "\u200b".join(KEY),
        " ".join(KEY),
        "\r\n ".join((KEY[:7], KEY[7:])),
        "\t".join((KEY[:3], KEY[3:])),
        f"Bearer {KEY}",
        f"{KEY[:9]}<br>{KEY[9:]}",
        KEY.replace("/", "\\/"),
        "".join(rng.choice((c, f"%{ord(c):02x}", f"&#{ord(c)};", f"\\u{ord(c):04x}")) for c in KEY),
    ]
    return rng.choice(found)


def is_told(text):
    """Whether a text tells the key, read as any program reads it."""
    forms = {text}
    for _ in range(4):
        for form in list(forms):
            forms |= {html.unescape(form), urllib.parse.unquote(form)}
            with contextlib.suppress(UnicodeError):
                forms.add(form.encode("latin-1", "backslashreplace").decode("unicode_escape"))
    plain = {"".join(c for c in form if c.isprintable() and c not in " \\").replace("<br>", "") for form in forms}
    secret = {
        KEY.lower(),
        KEY.encode().hex(),
        *(base64.b64encode(b" " * n + KEY.encode())[4:20].decode().lower() for n in range(3)),
    }
    return any(one in form.lower() for form in plain for one in secret)


def answer(rng):
    """(what it is, the bytes of one whole answer of a service, seconds between bytes)."""
    good = json.dumps({"choices": [{"message": {"content": "an owl sat"}, "finish_reason": "stop"}]}).encode()
    told = spellings(rng)
    kind = rng.choice(
        ("refused", "busy", "redirect", "echo", "content", "cut", "chunked", "drip", "head", "odd", "json")
    )
    status, headers, body, wait = "200 OK", [], good, 0
    if kind in ("refused", "busy"):
        code = rng.choice((400, 401, 403, 404, 418, 451) if kind == "refused" else (408, 429, 500, 503))
        status, body = f"{code} {rng.choice(('No', told.splitlines()[0][:60]))}", f"no such key: {told}".encode()
        headers = [f"Retry-After: {rng.choice(('1', '-1', 'nan', '1e999', '9' * 400, ''))}"]
    elif kind == "redirect":
        status, body = f"{rng.choice((300, 301, 302, 303, 304, 305, 307, 308, 399))} Elsewhere", b""
        place = f"http://127.0.0.1:1/{urllib.parse.quote(KEY, '')}"
        headers = [f"Location: {rng.choice((place, 'file:///etc/passwd', told.splitlines()[0], ''))}"]
    elif kind == "echo":
        body = f'{{"error": "{told}"}}'.encode()
    elif kind == "content":
        text = rng.choice((told, "\x00", "a\x1b[2Jb", "\ud800", "", " ", "\u202e", "x" * 900_000, 7, None, ["a"], {}))
        body = json.dumps(
            {"choices": [{"message": {"content": text}, "finish_reason": rng.choice(("stop", "length", 3, []))}]}
        ).encode()
    elif kind == "cut":
        headers = [f"Content-Length: {rng.choice((len(good) + 1, 5_000, 10**9, 2**63, 10**30))}"]
        body = good[: rng.choice((0, 1, 20, len(good)))]
    elif kind == "chunked":
        headers = ["Transfer-Encoding: chunked"]
        body = rng.choice(
            (b"", b"zz\r\n", b'5\r\n{"cho', b"ffffffffffffffff\r\nx", b"-1\r\n", b"4\r\nabcd", b"9" * 70_000)
        )
    elif kind == "drip":
        body, wait = b" " * 10_000, 0.02
    elif kind == "head":
        headers = rng.choice(
            (
                [f"X: {'a' * 70_000}"],
                ["X: a"] * 200,
                ["\x00: b"],
                ["Content-Length: x"],
                ["Content-Length: -1"],
                ["Content-Encoding: gzip"],
                ["Content-Length: 3", "Content-Length: 5000"],
            )
        )
    elif kind == "odd":
        raw = rng.choice(
            (
                b"",
                b"\x00" * 100,
                b"HTTP/1.1\r\n\r\n",
                b"HTTP/9.9 200 OK\r\n\r\n",
                b"HTTP/1.1 999 X\r\n\r\n",
                b"HTTP/1.1 100 Go on\r\n\r\n" * 200,
                b"SSH-2.0-x\r\n",
                b"HTTP/1.1 200 OK\r\n" * 3,
            )
        )
        return kind, raw, 0
    else:
        body = rng.choice(
            (
                b"[" * 200_000,
                b"{}",
                b"[]",
                b"null",
                b"NaN",
                b"\xff\xfe",
                b'{"choices": []}',
                b'{"choices": {"0": 1}}',
                b'{"choices": [null]}',
                b'{"choices": [{"message": []}]}',
                b"9" * 5_000,
                good + b"x",
                b'"' * 2_000_000,
            )
        )
    if kind not in ("cut", "chunked", "drip", "head"):
        headers = [*headers, f"Content-Length: {len(body)}"]
    head = "\r\n".join([f"HTTP/1.1 {status}", *headers, "Connection: close", "", ""])
    return kind, head.encode("utf-8", "replace") + body, wait


def serve(server, sent, wait, end):
    """Answer every request alike."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                got = b""
                while b"\r\n\r\n" not in got or len(got.partition(b"\r\n\r\n")[2]) < 20:
                    got += connection.recv(1 << 16)
                if not wait:
                    connection.sendall(sent)
                for place in range(0, len(sent) if wait else 0, 8):
                    connection.sendall(sent[place : place + 8])
                    if end.wait(wait):
                        break


def inside_services(folder, seed, count):
    """Answers of a service: the key in every spelling, redirects, cut or endless bodies, odd heads, odd content."""
    import logging

    import tdd
    from tdd.audit import paraphrasers

    rng, log = random.Random(seed), io.StringIO()
    paraphrasers._DEADLINE, paraphrasers._LONGEST_WAIT = 2.0, 0.01
    logging.getLogger().addHandler(logging.StreamHandler(log))
    logging.getLogger("tdd").setLevel(logging.DEBUG)
    os.environ["HOSTILE_KEY"] = KEY
    for number in range(count):
        kind, sent, wait = answer(rng)
        server, end, out = (
            socket.create_server(("127.0.0.1", 0)),
            threading.Event(),
            folder / f"service-{seed}-{number}",
        )
        threading.Thread(target=serve, args=(server, sent, wait, end), daemon=True).start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        error = ""
        with server, Trial(f"{kind}: {sent[:70]!r}") as said:
            begun = time.monotonic()
            try:
                tdd.paraphrase(
                    [{"id": "a", "text": "an owl"}],
                    out=out,
                    endpoint=address,
                    model="m",
                    versions=1,
                    attempts=2,
                    api_key_variable="HOSTILE_KEY",
                )
            except BaseException as raised:
                error = str(raised)
                raise
            finally:
                end.set()
                files = "".join(place.read_text("utf-8", "replace") for place in out.rglob("*") if place.is_file())
                if is_told(error) or is_told(log.getvalue()) or is_told(files):
                    said["wrong"] = f"the key is told: {(error or log.getvalue())[-300:]!r}"
                elif time.monotonic() - begun > 30:
                    said["wrong"] = "waited for more than 30 s"
            if kind in ("cut", "drip", "refused", "busy", "redirect", "echo") and not sent.endswith(b"}}]}"[-4:] + b""):
                said["wrong"] = "was taken for an answer"
            text = json.loads((out / "paraphrases.jsonl").read_text("utf-8"))["paraphrase_1"]
            if any(ord(c) < 32 for c in text):
                said["wrong"] = f"control characters in a paraphrase: {text[:50]!r}"
        log.truncate(0)


# Values of calls


def calls():
    """Public functions of numbers with arguments that they accept."""
    import numpy as np

    import tdd

    rng = np.random.default_rng(0)
    p, cal, new = rng.random(8).tolist(), rng.random(12).tolist(), rng.random(6).tolist()
    two = [rng.random((2, 12)).tolist(), rng.random((2, 6)).tolist()]
    knock = rng.random((3, 6)).tolist()
    tests = {
        name: {"p_values": p, "alpha": 0.1}
        for name in (
            "bh",
            "by",
            "holm",
            "hochberg",
            "hommel",
            "bonferroni",
            "sidak",
            "holm_sidak",
            "storey_bh",
            "two_stage_bh",
            "lond",
            "lord_plus_plus",
            "saffron",
            "rejections",
        )
    }
    more = {
        "ptdi": {"calibration": cal, "scores": new, "alpha": 0.1, "eta": 0.05},
        "td4eval": {"calibration": two[0], "scores": two[1], "alpha": 0.1},
        "jmcs": {"calibration": two[0], "scores": two[1], "alpha": 0.1, "eta": 0.5},
        "jecs": {"calibration": two[0], "scores": two[1], "alpha": 0.1},
        "best_score": {"calibration": two[0], "scores": two[1], "alpha": 0.1},
        "ktd": {"original": new, "knockoffs": knock, "alpha": 0.1},
        "conformal_p_values": {"calibration": cal, "scores": new, "null": "nonmember"},
        "conformal_e_values": {"calibration": cal, "scores": new, "alpha": 0.1, "null": "nonmember"},
        "weighted_conformal_p_values": {
            "calibration": cal,
            "scores": new,
            "calibration_weights": cal,
            "weights": new,
            "null": "nonmember",
        },
        "fdp_bounds": {"calibration": cal, "scores": new, "null": "nonmember", "delta": 0.1},
        "dkw_fdp_bounds": {"p_values": p, "num_calibration": 12, "delta": 0.1},
        "e_bh": {"e_values": p, "alpha": 0.1},
        "closed_e_bh": {"e_values": p, "alpha": 0.1},
        "combine_p_values": {"p_values": p, "method": "fisher"},
        "exchangeability": {"canonical": p[:4], "shuffled": [p[:4], p[4:], p[2:6]]},
        "shuffles_needed": {"num_shards": 50, "alpha": 0.05},
        "knockoff_symmetry": {"original": new, "knockoffs": knock},
    }
    return {name: (getattr(tdd, name), given) for name, given in {**tests, **more}.items() if hasattr(tdd, name)}


def inside_numbers(folder, seed, count):
    """Values of calls: odd numbers, types, shapes and sizes in the place of every argument and of its elements."""
    import copy
    import inspect

    import numpy as np

    rng = random.Random(seed)
    odd = [
        *ODD_VALUES,
        fractions.Fraction(10**400, 3),
        decimal.Decimal("1e999"),
        decimal.Decimal("sNaN"),
        b"1",
        1j,
        np.bool_(True),
        np.longdouble("1e4000"),
        np.float16("inf"),
        np.datetime64("2026-01-01"),
        object(),
        lambda: 1,
        iter([1]),
        np.array("x"),
        np.zeros((0, 3)),
        np.zeros((2, 2, 2)),
        np.ma.masked,
        np.array([None]),
        -math.inf,
        1 + 1e-12,
        "0.1",
        5e-324,
    ]
    ready = {name: one for name, one in calls().items() if {*one[1]} <= {*inspect.signature(one[0]).parameters}}
    if left := sorted({*calls()} - {*ready}):
        sys.exit(f"arguments that these do not have: {left}")
    for _ in range(count):
        name = rng.choice(sorted(ready))
        function, given = ready[name]
        given = copy.deepcopy(given)
        argument, value = rng.choice(sorted(given)), rng.choice(odd)
        place = given[argument]
        inner = isinstance(place, list) and rng.random() < 0.7
        if inner:
            while isinstance(place[0], list):
                place = rng.choice(place)
            place[rng.randrange(len(place))] = value
        else:
            given[argument] = value
        with Trial(f"{name}({argument}{'[i]' if inner else ''}={repr(value)[:40]})") as said:
            function(**given)
            if isinstance(value, (str, bytes, bool)) and not (inner and value == ""):
                said["wrong"] = "a word or a boolean was taken for a number"


def inside_paths(folder, seed, count):
    """Names of files and folders that no system has, or that are others', wherever a path is taken."""
    import tdd
    from tdd.cli import main

    rng = random.Random(seed)
    demo = pathlib.Path(tdd.__file__).parent / "demo"
    table = folder / f"table-{seed}.csv"
    table.write_text("role,loss\n" + "".join(f"{'calibration' if i < 30 else 'candidate'},{i}\n" for i in range(60)))
    rows = [{"id": "a", "text": "an owl"}]
    functions = {
        "load": tdd.load,
        "load_texts": tdd.load_texts,
        "load_score_table": tdd.load_score_table,
        "score model": lambda path: tdd.score(path, ["a"]),
        "score texts": lambda path: tdd.score(demo / "checkpoint", path, progress=False),
        "select out": lambda path: tdd.select(table, alpha=0.1, out=path),
        "run_audit out": lambda path: tdd.run_audit(
            demo / "checkpoint", rows, rows, alpha=0.1, out=path, progress=False
        ),
        "run_audit model": lambda path: tdd.run_audit(path, rows, rows, alpha=0.1, progress=False),
        "run_exchange out": lambda path: tdd.run_exchange(
            demo / "checkpoint", ["a", "b", "c", "d"], num_shards=2, out=path
        ),
        "paraphrase out": lambda path: tdd.paraphrase(
            rows, out=path, model="m", endpoint="http://127.0.0.1:9/v1", attempts=1
        ),
        "report": lambda path: command("report", path),
        "--out": lambda path: command("select", table, "--out", path),
        "score --out": lambda path: command("score", demo / "checkpoint", table, "--out", path),
        "lab": lambda path: command("lab", "example", path),
        "--html": lambda path: command("report", table, "--html", path),
        "info --model": lambda path: command("info", "--model", path),
        "study --out": lambda path: command("study", "ptdi-alpha", "--repetitions", "10", "--out", path),
    }

    def command(*words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([*map(str, words), "-q"])
        text = err.getvalue().rstrip("\n")
        if status == 2 and not (text.isprintable() and text):
            raise ValueError(f"not one line: {text[:300]!r}")
        if status == 2:
            raise tdd.InputError(text)

    odd = (
        "a\0b",
        "",
        " ",
        "\n",
        "x" * 300,
        "y/" * 3_000,
        "\ud800",
        "\x1b[2J",
        "\u202ex",
        ".",
        "..",
        "/",
        "/dev/null",
        "/dev/full",
        "/proc/self/mem",
        "/proc/self/fd/1",
        "/proc/version",
        "/sys",
        "/dev/zero",
        "~",
        "-",
        "%s",
        "{0}",
        "C:\\x",
        "a:b",
        "http://127.0.0.1:9/x",
        "file:///etc/passwd",
        "a@b",
        "@",
        "*",
        "**",
        "[",
        "~nobody-such/x",
        str(folder),
        str(table),
    )
    os.chdir(folder)
    for _ in range(count):
        name, path = rng.choice(sorted(functions)), rng.choice(odd)
        with Trial(f"{name}: {path[:40]!r}"):
            functions[name](path)


# Tables


def inside_tables(folder, seed, count):
    """Tables: columns without end, odd values, quotes, encodings, bombs, truncated and changed files."""
    import gzip

    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet as pq

    import tdd

    rng = random.Random(seed)
    rows = [
        {"id": f"a{i}", "role": "calibration" if i < 30 else "candidate", "loss": i / 7, "text": f"an owl {i}"}
        for i in range(60)
    ]

    def joined(separator):
        return "\n".join([separator.join(rows[0]), *(separator.join(map(str, row.values())) for row in rows)]) + "\n"

    def plain(ending):
        stream = io.BytesIO()
        if ending == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), stream)
        elif ending == "arrow":
            pyarrow.feather.write_feather(pa.Table.from_pylist(rows), stream)
        else:
            text = {"csv": joined(","), "tsv": joined("\t"), "json": json.dumps(rows)}.get(ending)
            return (text or "".join(json.dumps(row) + "\n" for row in rows)).encode()
        return stream.getvalue()

    def wide(ending):
        names = [f"c{i}" for i in range(10**6)]
        if ending in ("csv", "tsv"):
            separator = "," if ending == "csv" else "\t"
            return f"{separator.join(names)}\n{separator.join('1' * len(names))}\n".encode()
        return json.dumps([dict.fromkeys(names, 1)]).encode()

    def odd(ending):
        value = rng.choice([*ODD_VALUES, 10**5_000 if ending != "json" else 10**4_000])
        changed = [dict(row) for row in rows]
        for row in rng.sample(changed, rng.choice((1, 60))):
            row[rng.choice(("id", "role", "loss", "text"))] = value
        if ending in ("csv", "tsv"):
            separator = "," if ending == "csv" else "\t"
            lines = [
                separator.join(row and rows[0]),
                *(separator.join(str(one)[:6_000] for one in row.values()) for row in changed),
            ]
            return "\n".join(lines).encode("utf-8", "surrogatepass")
        return (
            json.dumps(changed).encode()
            if ending == "json"
            else "".join(json.dumps(row) + "\n" for row in changed).encode()
        )

    for number in range(count):
        ending = rng.choice(("csv", "tsv", "json", "jsonl", "parquet", "arrow", "csv.gz", "jsonl.gz", "jsonl.zst"))
        base = ending.partition(".")[0]
        how = rng.choice(
            (
                "cut",
                "bit",
                "bits",
                "odd",
                "odd",
                "wide",
                "deep",
                "quote",
                "encoding",
                "long",
                "bomb",
                "empty",
                "twice",
                "nul",
            )
        )
        data, whole = plain(base), False
        if how == "odd" and base not in ("parquet", "arrow"):
            data = odd(base)
        elif how == "wide" and base not in ("parquet", "arrow"):
            data = wide(base)
        elif how == "deep":
            data = b"[" * 100_000 + b"]" * 100_000 if base in ("json", "jsonl") else data + b'"' * 100_000
        elif how == "quote":
            data = data.replace(
                b"owl", rng.choice((b'"owl', b"owl\\", b"o\rwl", b"o\nwl", b'""o"wl', b"o,wl")), rng.choice((1, 60))
            )
        elif how == "encoding":
            data = data.decode("latin-1").encode(rng.choice(("utf-16", "utf-32", "utf-8-sig", "utf-16-le", "cp037")))
        elif how == "long":
            data = data.replace(b"owl 3", b"x" * rng.choice((10**6, 3 * 10**7)))
        elif how == "twice":
            data = data + data
        elif how == "nul":
            data = data[:50] + b"\x00" * rng.choice((1, 5_000)) + data[50:]
        elif how == "empty":
            data = rng.choice((b"", b"\n", b"[]", b"{}", b"null", b" ", b"id\n"))
        if ending.endswith(".gz"):
            data = gzip.compress(b"a" * (3 << 30) if how == "bomb" and seed == 0 and number < 30 else data, 1)
        elif ending.endswith(".zst"):
            data = pa.compress(data, "zstd", asbytes=True)
        if how in ("bit", "bits", "cut"):
            data = bytearray(data)
            for _ in range({"bit": 1, "bits": 20, "cut": 0}[how]):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            if how == "cut":
                del data[rng.randrange(1, len(data)) :]
                whole = (
                    ending not in ("parquet", "arrow", "json") and "." not in ending
                )  # of lines the first are a table
        place = folder / f"table-{seed}-{number}.{ending}"
        place.write_bytes(bytes(data))
        call = rng.choice(("scores", "texts", "audit"))
        with Trial(f"{ending}, {how}, {call}") as said:
            if call == "scores":
                tdd.select(place, alpha=0.2, score="loss")
            elif call == "texts":
                tdd.load_texts(place)
            else:
                tdd.load_score_table(place, scores="loss")
            if how == "cut" and not whole:
                said["wrong"] = "a file that was cut was read"
        place.unlink()


# Pictures


def inside_images(folder, seed, count):
    """Pictures: bombs, truncated and changed files, odd modes and sizes, several frames, turned by EXIF."""
    import numpy as np
    import vision_files
    from PIL import Image
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    import tdd
    from tdd.audit.images import INSTRUCTION
    from tdd.models import vision

    rng, draws = random.Random(seed), np.random.default_rng(seed)
    words = ["<unk>", "</s>", "USER:", "ASSISTANT:", *INSTRUCTION.split()]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")
    model = vision.load_vision_language(vision_files.write(folder / f"llava-{seed}", "llava-1.5"))._replace(
        tokenizer=tokenizer
    )

    def file(kind, mode="RGB", size=(16, 12), **options):
        made, stream = Image.fromarray(draws.integers(0, 256, (*size[::-1], 3), np.uint8)).convert(mode), io.BytesIO()
        made.save(stream, kind, **options)
        return stream.getvalue()

    plain = tdd.score_images(model, [{"image": file("PNG")}], progress=False)
    for _ in range(count):
        kind, how = (
            rng.choice(("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")),
            rng.choice(("cut", "bit", "bits", "bomb", "size", "mode", "frames", "exif", "kind", "empty")),
        )
        data = file(kind)
        if how == "cut":
            data = data[: rng.randrange(len(data))]
        elif how in ("bit", "bits"):
            data = bytearray(data)
            for _ in range(1 if how == "bit" else 20):
                data[rng.randrange(min(len(data), 200))] ^= 1 << rng.randrange(8)
            data = bytes(data)
        elif how == "bomb":
            kind, data = "PNG", file("PNG")
            sides = struct.pack(">II", rng.choice((10**5, 2**31 - 1, 0, 65_536)), rng.choice((10**5, 1, 2**31 - 1)))
            ihdr = b"IHDR" + sides + data[24:29]
            import zlib

            data = data[:12] + ihdr + struct.pack(">I", zlib.crc32(ihdr)) + data[33:]
        elif how == "size":
            kind = rng.choice(("PNG", "BMP", "PPM"))
            data = file(kind, size=rng.choice(((1, 1), (1, 5_000), (5_000, 1), (2_000, 2_000))))
        elif how == "mode":
            kind = rng.choice(("PNG", "TIFF"))
            data = file(
                kind, mode=rng.choice(("1", "L", "P", "I", "F") if kind == "TIFF" else ("1", "L", "P", "LA", "RGBA"))
            )
        elif how == "frames":
            kind, one, stream = "GIF", Image.new("RGB", (4, 4)), io.BytesIO()
            one.save(
                stream, "GIF", save_all=True, append_images=[Image.new("RGB", (4, 4), (i, 0, 0)) for i in range(1, 200)]
            )
            data = stream.getvalue()
        elif how == "exif":
            kind, exif = rng.choice(("JPEG", "PNG", "WEBP")), Image.Exif()
            exif[0x0112] = rng.choice((0, 1, 3, 6, 8, 9, 65_535))
            data = file(kind, exif=exif)
        elif how == "kind":
            data = rng.choice(
                (
                    b"%!PS-Adobe-3.0 EPSF\n(%pipe%touch owned) (w) file",
                    b"<svg onload='x'/>",
                    b"\x00" * 500,
                    b"MZ",
                    b"GIF89a",
                )
            )
        else:
            data = b""
        with Trial(f"{kind} {how}") as said:
            found = tdd.score_images(model, [{"image": data}], progress=False)
            if how in ("cut", "empty", "kind") and not _whole(data):
                said["wrong"] = "a file that is not whole was read"
            if found.values.keys() != plain.values.keys():
                said["wrong"] = "other columns"


def _whole(data):
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except Exception:
        return False
    return True


# Processes


def inside_fork(folder, seed, count):
    """Children by fork of a process that has computed: the same call, an audit, a pool; a child may not hang."""
    import multiprocessing

    import numpy as np

    import tdd

    rng, scores = random.Random(seed), np.random.default_rng(0).random(60)
    demo = pathlib.Path(tdd.__file__).parent / "demo"
    texts = list((demo / "corpus" / "candidates.jsonl").read_text().splitlines()[:20])
    texts = [json.loads(line)["text"] for line in texts]
    jobs = {
        "bh": lambda: tdd.bh(scores, 0.1).adjusted.tolist(),
        "ptdi": lambda: tdd.ptdi(scores[:30], scores[30:], alpha=0.2).p_values.tolist(),
        "score": lambda: tdd.score(demo / "checkpoint", texts, "loss", progress=False)["loss"].tolist(),
        "new shape": lambda: tdd.ptdi(scores[:31], scores[31:50], alpha=0.2).p_values.tolist(),
    }
    expected = {name: jobs[name]() for name in jobs if name != "new shape"}
    for number in range(count):
        name, way = rng.choice(sorted(jobs)), rng.choice(("fork", "pool"))
        place = folder / f"child-{seed}-{number}"

        def work(name=name, place=place):
            try:
                said = {"found": jobs[name]()}
            except tdd.InputError as error:
                said = {"refused": str(error)}
            except BaseException as error:
                said = {"wrong": f"{type(error).__name__}: {error}"}
            place.write_text(json.dumps(said))

        with Trial(f"{way}: {name}") as said:
            context = multiprocessing.get_context("fork")
            child = context.Process(target=work)
            child.start()
            child.join(30)
            if child.exitcode is None:
                child.kill()
                child.join()
                said["wrong"] = "the child hangs"
            elif child.exitcode != 0 or not place.exists():
                said["wrong"] = f"the child ended with {child.exitcode}"
            else:
                told = json.loads(place.read_text())
                said |= {key: told[key] for key in ("refused", "wrong") if key in told}
                if "found" in told and told["found"] != expected.setdefault(name, told["found"]):
                    said["wrong"] = "another result without a word"


def inside_shapes(folder, seed, count):
    """Calls of new shapes in one process: its memory is flat from the second half on.

    Of NumPy's arrays: an array of JAX has the programs of its shape, as everywhere in JAX.
    """
    import numpy as np

    import tdd

    rng, sizes = np.random.default_rng(seed), []
    for number in range(count):
        n, m = int(rng.integers(20, 3_000)), int(rng.integers(1, 3_000))
        with Trial(f"ptdi, bh, bounds of {n} and {m}") as said:
            scores = rng.random(n + m)
            found = tdd.ptdi(scores[:n], scores[n:], alpha=0.1)
            tdd.bh(np.asarray(found.p_values), 0.1)
            sizes.append(int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
            if number == count - 1:
                grown = sizes[-1] - sizes[count // 2]
                said["grown"] = grown
                if grown > 64 << 20:
                    said["wrong"] = f"{grown / 2**20:.0f} MB more than half-way"


KINDS = {
    "models": inside_models,
    "services": inside_services,
    "numbers": inside_numbers,
    "paths": inside_paths,
    "images": inside_images,
    "fork": inside_fork,
    "tables": inside_tables,
    "shapes": inside_shapes,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
