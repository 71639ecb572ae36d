"""`tdd paraphrase` against a service of this process: resuming, hostile answers, refusals."""

import contextlib
import html
import http.server
import json
import re
import socket
import threading

import gpt2_files
import pytest

import tdd
from tdd import InputError
from tdd.audit import paraphrase as module
from tdd.audit import paraphrasers
from tdd.audit.paraphrase import _pieces
from tdd.cli import main

LONG = 'Mr. Ward left at 3. It rained (a lot!) "Go," she said. ' + "the old mill " * 20 + "stood.\n\nNobody came."
TEXTS = [{"id": f"t{n}", "text": f"the owl number {n} sat on the mill"} for n in range(6)] + [
    {"id": "long", "text": LONG}
]
KEY = "sk-very-secret-1234"


class Service:
    """Answers with the words in reverse order; `script` holds what comes before that."""

    def __init__(self):
        self.requests, self.keys, self.script, self.dies_after = [], [], [], None

    def respond(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.keys.append(handler.headers.get("Authorization"))
        if self.dies_after is not None and len(self.requests) >= self.dies_after:
            handler.connection.close()
            return
        if self.script:
            status, headers, content = self.script.pop(0)
        else:
            prompt = body["messages"][0]["content"]
            self.requests.append(body)
            status, headers = 200, {}
            text = prompt.removeprefix("again: ").split("\n\n")[-1]
            content = completion(f"{' '.join(reversed(text.split()))} {body['seed']}")
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


def completion(content, reason="stop"):
    return json.dumps({"choices": [{"message": {"content": content}, "finish_reason": reason}]}).encode()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(gpt2_files.write(tmp_path_factory.mktemp("model") / "gpt2")[0])


@pytest.fixture
def waits(monkeypatch):
    found = []
    monkeypatch.setattr(paraphrasers.time, "sleep", found.append)
    return found


@pytest.fixture
def service(waits):
    with running() as found:
        yield found


@contextlib.contextmanager
def running():
    state = Service()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            with contextlib.suppress(OSError, ValueError):
                state.respond(self)

        def log_message(self, *ignored):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    state.address = f"http://127.0.0.1:{server.server_port}/v1"
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def asked(service, out, texts=TEXTS, **options):
    given = {"endpoint": service.address, "model": "writer", "prompt": "again: {text}", "attempts": 3, **options}
    return tdd.paraphrase(texts, out=out, **given)


def table(out):
    return [json.loads(line) for line in (out / "paraphrases.jsonl").read_text("utf-8").splitlines()]


def test_the_table_and_the_record(service, tmp_path):
    run = asked(service, tmp_path / "run", versions=2, seed=3, top_k=7, audited="suspect")
    rows = table(tmp_path / "run")
    assert [row["id"] for row in rows] == [row["id"] for row in TEXTS]
    assert [row["text"] for row in rows] == [row["text"] for row in TEXTS]
    first = rows[0]
    assert first["paraphrase_1"].startswith("mill the on sat 0 number owl the ")
    assert first["paraphrase_1"] != first["paraphrase_2"]  # another seed
    assert first["length_ratio_1"] == 9 / 8
    assert not first["copy_1"]
    assert not first["cut_1"]
    pieces = [piece for piece, _ in _pieces(LONG, 40)]
    assert len(service.requests) == 2 * (6 + len(pieces))
    sent = service.requests[0]
    assert {name: sent[name] for name in ("model", "temperature", "top_p", "top_k", "max_tokens")} == {
        "model": "writer", "temperature": 1.0, "top_p": 0.95, "top_k": 7, "max_tokens": 128,
    }  # fmt: skip
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["kind"] == "paraphrase"
    assert record["seed"] == 3
    assert record["options"]["prompt"] == "again: {text}"
    assert record["options"]["audited"] == "suspect"
    assert record["paraphraser"]["address"] == service.address + "/chat/completions"
    assert record["result"] == run["result"]
    assert [one["copies"] for one in run["result"]] == [0, 0]


def test_long_texts_are_cut_into_sentences_and_nothing_is_lost():
    pieces = _pieces(LONG, 40)
    assert "".join(piece + space for piece, space in pieces) == LONG
    assert len(pieces) >= 4
    assert pieces[-1][0] == "Nobody came."
    assert pieces[-2][1] == "\n\n"
    assert pieces[0] == ("Mr. Ward left at 3.", " ")
    assert [piece for piece, _ in _pieces("J. Doe saw Dr. No. He ran! Why?", 0)] == [
        "J. Doe saw Dr. No.",
        "He ran!",
        "Why?",
    ]
    assert len(_pieces("x" + " " * 200_000 + "y", 0)) == 1  # linear in the length
    assert _pieces("One. Two. Three.", 40) == [("One. Two. Three.", "")]
    for text in ("\n\n  a\n\nb  \n", "x. Y", "word " * 50, "A.\u3000B! C?\r\n\r\nD"):
        for most in (0, 40):
            pieces = _pieces(text, most)
            assert "".join(piece + space for piece, space in pieces) == text.lstrip()
            assert all(piece == piece.strip() != "" for piece, _ in pieces)


@pytest.mark.parametrize(
    "text",
    [
        "See Fig. 3 and No. 12, vol. 2, pp. 7. Then go.",
        "He lives at no. 5 there. Then go.",
        "J. R. R. Tolkien and É. Zola met Mrs. May, i.e. Anna (cf. Müller), vs. Smith. Then go.",
        "It costs ca. 30, see Eq. 4. Then go.",
    ],
)
def test_abbreviations_end_no_sentence(text):
    assert [piece for piece, _ in _pieces(text, 0)] == [text.removesuffix(" Then go."), "Then go."]


def test_what_looks_like_an_abbreviation_may_end_a_sentence():
    found = [piece for piece, _ in _pieces("He said no. Nobody came to the piano. 12 left. Go up. 3 stay.", 0)]
    assert found == ["He said no.", "Nobody came to the piano.", "12 left.", "Go up.", "3 stay."]


def test_the_layout_stays(service, tmp_path):
    """A model sees line breaks: a paraphrase that lacks those of its text would differ from it by its layout alone."""
    poem = " \n one two\n\n  three four  \r\nfive six \n"
    long = "\n".join(["word " * 30 + "end."] * 3) + "  "
    asked(service, tmp_path, [{"id": "poem", "text": poem}, {"id": "long", "text": long}])
    rows = table(tmp_path)
    spaces = lambda text: [gap for gap in re.findall(r"\s+", text) if "\n" in gap]  # noqa: E731
    for row, text in zip(rows, (poem, long)):
        assert row["text"] == text
        assert spaces(row["paraphrase_1"]) == spaces(text)
    assert rows[0]["paraphrase_1"].startswith(" \n two one")
    assert rows[0]["paraphrase_1"].endswith(" \n")
    assert rows[1]["paraphrase_1"].endswith("  ")


@pytest.mark.parametrize("dies_after", [0, 1, 5, 9])
def test_a_run_that_dies_goes_on_and_asks_nothing_twice(service, tmp_path, dies_after):
    whole = asked(service, tmp_path / "whole", versions=2)
    bodies = [json.dumps(body, sort_keys=True) for body in service.requests]
    assert len(bodies) == len({*bodies})
    service.requests.clear()
    service.dies_after = dies_after
    with pytest.raises(InputError, match=r"no answer in 3 attempts.*run the same command again"):
        asked(service, tmp_path / "cut", versions=2)
    assert not (tmp_path / "cut" / "run.json").exists()
    assert len(service.requests) == dies_after
    with open(tmp_path / "cut" / "answers.jsonl", "ab") as file:
        file.write(b'{"name": "12')  # a line that was being written
    service.dies_after = None
    again = asked(service, tmp_path / "cut", versions=2)
    assert [json.dumps(body, sort_keys=True) for body in service.requests] == bodies
    assert (tmp_path / "cut" / "paraphrases.jsonl").read_bytes() == (
        tmp_path / "whole" / "paraphrases.jsonl"
    ).read_bytes()
    assert again["result"] == whole["result"]
    asked(service, tmp_path / "cut", versions=2)  # finished: nothing is asked
    assert len(service.requests) == len(bodies)


def test_an_exception_in_this_process_loses_no_answer(service, tmp_path, monkeypatch):
    send, count = paraphrasers.Service._send, []

    def stops(self, data):
        count.append(data)
        if len(count) == 4:
            raise KeyboardInterrupt
        return send(self, data)

    monkeypatch.setattr(paraphrasers.Service, "_send", stops)
    with pytest.raises(KeyboardInterrupt):
        asked(service, tmp_path)
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 3
    asked(service, tmp_path)
    bodies = [json.dumps(body, sort_keys=True) for body in service.requests]
    assert len(bodies) == len({*bodies})


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{}", b"null", b"[]", b"<html><body>busy</body></html>", b"\xff\xfe", b'{"choices": []}', b"[" * 100_000,
        b'{"choices": [{"message": null}]}', completion(""), completion(" \n"), completion(None), completion(["x"]),
        b'{"choices": [{"message": {"content": "\\ud800"}}]}', b"x" * (2**20 + 9),
    ],
)  # fmt: skip
def test_nonsense_is_asked_again_and_then_refused_in_one_line(service, waits, tmp_path, content):
    service.script = [(200, {}, content)]
    asked(service, tmp_path / "again", TEXTS[:1])
    assert table(tmp_path / "again")[0]["paraphrase_1"].startswith("mill")
    service.script = [(200, {}, content)] * 3
    with pytest.raises(InputError, match="gave no answer in 3 attempts") as error:
        asked(service, tmp_path / "refused", TEXTS[:1])
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    assert (tmp_path / "refused" / "answers.jsonl").read_bytes() == b""


def test_busy_services_are_asked_again_with_longer_waits(service, waits, tmp_path):
    service.script = [(429, {"Retry-After": "7"}, b"slow down"), (503, {}, b""), (500, {}, b"<html>"), (504, {}, b"")]
    asked(service, tmp_path, TEXTS[:1], attempts=5)
    assert waits == [7, 2, 4, 8]
    service.script = [(429, {"Retry-After": "99999"}, b"")]
    asked(service, tmp_path / "late", TEXTS[:1])
    assert waits[-1] == 60
    service.script = [(429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"")]
    asked(service, tmp_path / "dated", TEXTS[:1])
    assert waits[-1] == 1


def test_silence_is_asked_again(service, waits, tmp_path, monkeypatch):
    monkeypatch.setattr(paraphrasers, "_TIMEOUT", 0.1)
    held = threading.Event()
    respond, first = service.respond, []

    def late(handler):
        if not first:
            first.append(True)
            held.wait(5)
            return
        respond(handler)

    service.respond = late
    asked(service, tmp_path, TEXTS[:1])
    held.set()
    assert waits == [1]


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_ends_the_run_and_the_key_is_nowhere(service, tmp_path, monkeypatch, caplog, status):
    monkeypatch.setenv("SERVICE_KEY", KEY)
    asked(service, tmp_path, TEXTS[:2], api_key_variable="SERVICE_KEY")
    assert {*service.keys} == {f"Bearer {KEY}"}
    said = f"wrong key {KEY}".encode()
    service.script = [(status, {"Location": service.address + "/elsewhere"}, said)]
    before = len(service.keys)
    with pytest.raises(InputError, match=rf"refuses the request, status {status}.*\[key\]") as error:
        asked(service, tmp_path / "refused", TEXTS[:1], api_key_variable="SERVICE_KEY")
    assert len(service.keys) == before + 1  # not again
    assert KEY not in str(error.value) + caplog.text
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_named_and_not_followed(service, tmp_path, monkeypatch, status):
    monkeypatch.setenv("SERVICE_KEY", KEY)
    place = f"{service.address}/elsewhere?key={KEY}"
    service.script = [(status, {"Location": place}, b"")]
    said = rf"sends on to '{service.address}/elsewhere\?key=\[key\]' \(status {status}\)"
    with pytest.raises(InputError, match=said):
        asked(service, tmp_path, TEXTS[:1], api_key_variable="SERVICE_KEY")
    assert len(service.keys) == 1


class Raw:
    """A socket that sends bytes, then what `more` gives, and closes."""

    def __init__(self, sent, more=()):
        self.sent, self.more = sent, more
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.server.getsockname()[1]}/v1"
        threading.Thread(target=self.serve, daemon=True).start()

    def read_request(self, connection):
        got = b""
        while b"\r\n\r\n" not in got:
            got += connection.recv(1 << 16)
        head, _, body = got.partition(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: *(\d+)", head)[1])
        while len(body) < length:
            body += connection.recv(1 << 16)

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.server.accept()
                with connection, contextlib.suppress(OSError):
                    self.read_request(connection)  # what is unread when a socket closes resets the connection
                    connection.sendall(self.sent)
                    for one in self.more:
                        connection.sendall(one)


@pytest.mark.parametrize("length", [b"5000", b"1" + b"0" * 30, b"9" * 5_000])
def test_a_body_that_was_cut_short_is_no_answer(length, waits, tmp_path):
    whole = completion("an answer")
    raw = Raw(b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\nConnection: close\r\n\r\n" + whole)
    with raw.server, pytest.raises(InputError, match=f"cut short, {len(whole)} of {length.decode()[:9]}"):
        asked(raw, tmp_path, TEXTS[:1])


def test_a_broken_status_line_is_told_in_one_printable_line(waits, tmp_path, caplog):
    raw = Raw(b"\x00\x1b[2J" * 20 + b"\r\n\r\n")
    with raw.server, caplog.at_level("INFO"), pytest.raises(InputError) as raised:
        asked(raw, tmp_path, TEXTS[:1])
    assert str(raised.value).isprintable()
    assert caplog.messages
    assert all(map(str.isprintable, caplog.messages))


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 400 No\r\n\r\n"])
def test_a_service_that_drips_is_given_up(waits, tmp_path, monkeypatch, head):
    monkeypatch.setattr(paraphrasers, "_DEADLINE", 0.2)
    end = threading.Event()
    raw = Raw(head, (b" " for _ in iter(lambda: end.wait(0.02), True)))
    with raw.server, pytest.raises(InputError, match=r"no whole answer within 0\.2 s"):
        asked(raw, tmp_path, TEXTS[:1], attempts=1)
    end.set()


def test_control_characters_become_no_paraphrase(service, tmp_path):
    service.script = [(200, {}, completion("an \x1b[31manswer\x00")), (200, {}, completion("plain"))]
    asked(service, tmp_path, TEXTS[:1])
    assert table(tmp_path)[0]["paraphrase_1"] == "plain"
    service.script = [(200, {}, completion("\x9b"))] * 3
    with pytest.raises(InputError, match=r"the control character '\\x9b'"):
        asked(service, tmp_path / "again", TEXTS[:1])


def test_copies_lengths_and_cuts_are_reported(service, tmp_path):
    same, half = TEXTS[0]["text"], TEXTS[1]["text"]
    service.script = [(200, {}, completion(same.upper() + "!")), (200, {}, completion(half[:8], "length"))]
    run = asked(service, tmp_path, TEXTS[:2])
    rows = table(tmp_path)
    assert [row["copy_1"] for row in rows] == [True, False]
    assert [row["cut_1"] for row in rows] == [False, True]
    assert [row["length_ratio_1"] for row in rows] == [1, 0.25]
    assert run["result"][0]["copies"] == run["result"][0]["cut"] == 1
    told = " ".join(run["warnings"])
    assert "1 of 2 are the text itself" in told
    assert "cut at max_tokens" in told
    assert "median length is 0.62" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"audited": "WRITER"}, "is the audited model"),
        ({"audited": "models/writer/"}, "is the audited model"),
        ({"audited": "owner/writer@step7"}, "is the audited model"),
        ({"endpoint": "file:///etc/passwd"}, "must be an http or https address"),
        ({"endpoint": ""}, "must be an http or https address"),
        ({"endpoint": "http://host:port/v1"}, "must be an http or https address"),
        ({"endpoint": "http://[::1/v1"}, "must be an http or https address"),
        ({"endpoint": "http://host/v1\r\nX: y"}, "must be an http or https address"),
        ({"endpoint": "ftp://me:secret@host/v1"}, "must be an http or https address"),
        ({"temperature": 1e-9}, "temperature must be 0 or at least 0.01"),
        ({"endpoint": "http://me:secret@host/v1"}, "must hold no password"),
        ({"endpoint": "http://host/v1?key=secret"}, "must hold no password"),
        ({"api_key_variable": "TDD_NO_SUCH"}, "'TDD_NO_SUCH' is not set"),
        ({"prompt": "no place"}, "must hold {text} once"),
        ({"versions": 0}, "versions"),
        ({"seed": -1}, "seed must be a whole number from 0 on, got -1"),
        ({"temperature": float("nan")}, "temperature must be a number"),
        ({"top_p": 1.5}, "top_p must be a number in 0..1, got 1.5"),
        ({"max_tokens": 1.5}, "max_tokens"),
    ],
)
def test_refusals(service, tmp_path, options, message):
    with pytest.raises(InputError, match=message) as error:
        asked(service, tmp_path / "run", **options)
    assert "secret" not in str(error.value)
    assert not service.requests
    assert not (tmp_path / "run").exists()


def test_a_folder_of_other_options_and_damaged_answers(service, tmp_path):
    service.dies_after = 2
    with pytest.raises(InputError, match="no answer"):
        asked(service, tmp_path)
    with pytest.raises(InputError, match="a run of other inputs or options"):
        asked(service, tmp_path, seed=1)
    (tmp_path / "answers.jsonl").write_text('{"name": 1}\n')
    with pytest.raises(InputError, match="line 1 is damaged"):
        asked(service, tmp_path)


def test_the_command(service, tmp_path, capsys):
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in TEXTS[:3]))
    command = ["paraphrase", str(tmp_path / "texts.jsonl"), "--endpoint", service.address, "--model", "writer"]
    command += ["--prompt", "again: {text}", "--out", str(tmp_path / "run")]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["outcome"] == "3 texts, 1 paraphrase of each"
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "writer (chat completions; address in run.json)" in page
    assert service.address not in page
    assert main(command) == 0
    assert "paraphrase_1: 3 texts, length 1.12, 1.12, 1.12 of the text" in capsys.readouterr().out.replace("\n", " ")
    assert len(service.requests) == 3
    assert main([*command[:-1], str(tmp_path / "other"), "--audited", "writer"]) == 2
    assert "is the audited model" in capsys.readouterr().err
    read = tdd.load_texts(tmp_path / "run" / "paraphrases.jsonl", text_field="paraphrase_1")
    assert read.ids == ("t0", "t1", "t2")
    labelled = [json.dumps({**row, "y": place}) for place, row in enumerate(TEXTS[:2])]
    (tmp_path / "texts.jsonl").write_text("\n".join(labelled))
    assert main([*command[:-1], str(tmp_path / "labelled"), "--label-field", "y"]) == 0
    assert tdd.load_texts(tmp_path / "labelled" / "paraphrases.jsonl", label_field="label").labels == (0, 1)


def test_an_audit_writes_its_paraphrases_first(checkpoint, service, tmp_path, capsys):
    rows = [{"name": f"t{n}", "words": f"the owl number {n} sat on the mill"} for n in range(8)]
    for name, part in (("texts", rows), ("known", [{**row, "name": f"k{n}"} for n, row in enumerate(rows[:4])])):
        part = [{**row, "words": f"{row['words']} of {name}", "truth": int(name == "texts")} for row in part]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    command = ["audit", checkpoint, "--candidates", str(tmp_path / "texts.jsonl"), "--calibration"]
    command += [str(tmp_path / "known.jsonl"), "--text-field"]
    command += ["words", "--id-field", "name", "--label-field", "truth", "--score", "loss", "--paraphraser", "writer"]
    command += ["--endpoint", service.address, "--paraphrases", "2", "--alpha", "0.4", "--out", str(tmp_path / "run")]
    assert main([*command, "--method", "ktd", "--quiet", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["decision"]["method"].startswith("ktd/")
    assert told["checks"]["symmetry"]["num_items"] == 4
    assert len(service.requests) == 24
    written = table(tmp_path / "run-paraphrases" / "candidates")
    assert [row["label"] for row in written] == [1] * 8
    assert main([*command, "--method", "ktd:rule=multi", "--quiet"]) == 0, "nothing has changed"
    assert len(service.requests) == 24
    assert main(command) == 2
    assert "--paraphraser is for --method ktd" in capsys.readouterr().err
    assert main([*command, "--method", "ktd", "--knockoffs", "words"]) == 2
    assert "--knockoffs is not possible beside --paraphraser" in capsys.readouterr().err
    assert main([*command, "--method", "ktd", "--paraphrases", "0"]) == 2
    assert "--paraphrases must be" in capsys.readouterr().err
    assert main(["audit", "model", "--candidates", "texts.jsonl", "--endpoint", service.address]) == 2
    assert "--endpoint is for --paraphraser MODEL" in capsys.readouterr().err
    asked = len(service.requests)
    for options in (("--alpha", "2"), ("--score", "losss"), ("--distributed",), ("--calibration", "none.jsonl")):
        assert main([*command[:-1], str(tmp_path / "other"), "--method", "ktd", *options]) == 2
    assert len(service.requests) == asked, "nothing is asked before the audit's options are known to be good"


def test_known_members_get_paraphrases_where_the_rule_needs_them(checkpoint, service, tmp_path, capsys):
    for name, size in (("texts", 8), ("known", 6), ("members", 3)):
        rows = [{"id": f"{name}{n}", "text": f"the owl number {n} sat on the mill of {name}"} for n in range(size)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    paths = {name: str(tmp_path / f"{name}.jsonl") for name in ("texts", "known", "members")}
    command = ["audit", checkpoint, "--candidates", paths["texts"], "--calibration", paths["known"]]
    command += ["--score", "loss", "--paraphraser", "writer", "--endpoint", service.address, "--alpha", "0.4"]
    command += ["--method", "ktd:rule=conformal,proportion=moment", "--out", str(tmp_path / "run"), "--json"]
    assert main(command) == 2
    assert "needs known members" in capsys.readouterr().err
    assert not service.requests
    assert main([*command, "--members", paths["members"]]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["decision"]["method"] == "ktd/conformal"
    assert len(service.requests) == 3 * (8 + 6 + 3)  # three paraphrases of each text
    assert len(table(tmp_path / "run-paraphrases" / "members")) == 3


def test_an_answer_with_the_key_is_kept_nowhere(service, tmp_path, monkeypatch):
    monkeypatch.setenv("SERVICE_KEY", KEY)
    service.script = [(200, {}, completion(f"your key is {KEY}")), (401, {}, f"{'x' * 110} {KEY}".encode())]
    with pytest.raises(InputError, match="refuses the request") as caught:
        asked(service, tmp_path / "run", texts=TEXTS[:1], api_key_variable="SERVICE_KEY")
    assert KEY[:8] not in str(caught.value)
    assert KEY not in (tmp_path / "run" / "answers.jsonl").read_text()
    slashed = "ab/cd"
    monkeypatch.setenv("SERVICE_KEY", slashed)
    service.script = [(200, {}, b'{"error": "ab\\/cd"}')] * 3
    with pytest.raises(InputError, match=r"\[key\]") as caught:
        asked(service, tmp_path / "other", texts=TEXTS[:1], api_key_variable="SERVICE_KEY")
    assert "cd" not in str(caught.value).partition("no chat completion")[2]


def test_a_finished_run_checks_its_table(service, tmp_path):
    asked(service, tmp_path / "run", texts=TEXTS[:1])
    (tmp_path / "run" / "paraphrases.jsonl").write_text("{}")
    with pytest.raises(InputError, match="damaged or was edited"):
        asked(service, tmp_path / "run", texts=TEXTS[:1])
    (tmp_path / "run" / "paraphrases.jsonl").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        asked(service, tmp_path / "run", texts=TEXTS[:1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoint": "http://a..b/v1"}, "endpoint must be an http or https address"),
        ({"endpoint": 5}, "endpoint must be a path or a name, got 5"),
        ({"model": 5}, "model must be a path or a name, got 5"),
        ({"audited": ("lm", 1)}, "audited must be a path or a name"),
        ({"max_tokens": 10**8}, "max_tokens must be at most 4096"),
    ],
)
def test_values_of_other_kinds(service, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        asked(service, tmp_path / "run", **options)


def test_a_finished_run_names_the_model_that_is_audited_now(service, tmp_path):
    """The table is the same, and nothing is asked again."""
    asked(service, tmp_path / "run", TEXTS[:2], audited="suspect")
    written, asked_for = table(tmp_path / "run"), len(service.requests)
    again = asked(service, tmp_path / "run", TEXTS[:2], audited="other")
    assert again["options"]["audited"] == "other"
    assert "tdd audit other" in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert (table(tmp_path / "run"), len(service.requests)) == (written, asked_for)


def test_a_revision_is_cut_from_hub_ids_alone():
    assert module._without_revision("owner/name@main") == "owner/name"
    assert module._without_revision("x@y/t5/") == "x@y/t5"


def test_the_report(service, tmp_path, capsys):
    hostile = "<script>alert(1)</script> & the owl\x1b[31m"
    texts = [
        {"id": "<b>0</b>", "text": hostile},
        *TEXTS[:3],
        *({"id": f"m{n}", "text": "word " * 200} for n in range(3)),
    ]
    folder = tmp_path / "the run"
    asked(service, folder, texts, versions=2, audited="./suspect model")
    page = (folder / "report.html").read_text("utf-8")
    assert main(["report", str(folder)]) == 0
    screen = capsys.readouterr().out
    for shown in (page, screen):
        for said in ("Paraphrases by writer", "again: {text}", "temperature 1.0", "paraphrase_2", "exchangeable"):
            assert said in shown.replace("\n", " "), said
        assert "\x1b[31m" not in shown
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<b>0</b>" not in page
    command = "tdd audit 'suspect model' --candidates 'the run/paraphrases.jsonl' --method ktd --knockoffs"
    assert html.unescape(page).count(f"{command} paraphrase_1,paraphrase_2") == 1
    assert "word " * 200 not in page, "long texts are shortened"
    assert "<td>m0</td>" in page
    assert "m1" not in page, "the first five texts alone"
    assert main(["report", str(folder), "--markdown"]) == 0
    assert "## Lengths and copies" in capsys.readouterr().out
    written = page.encode()
    assert main(["report", str(folder), "--html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "paraphrase"
    assert (folder / "report.html").read_bytes() == written
    (folder / "paraphrases.jsonl").write_text("{}\n")
    assert main(["report", str(folder)]) == 2
    assert "damaged or was edited" in capsys.readouterr().err
