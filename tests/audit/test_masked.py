"""A key is masked in whatever spelling a service repeats it, and other text stays."""

import base64
import html
import json
import urllib.parse

import pytest

from tdd.audit.masked import masked

KEY = "sk-a/b+c=d&1<2>~x.Y_z"
SPELLINGS = {
    "plain": KEY,
    "upper": KEY.upper(),
    "json": json.dumps(KEY)[1:-1].replace("/", "\\/"),
    "unicode": "".join(f"\\u{ord(c):04x}" for c in KEY),
    "unicode upper": "".join(f"\\u{ord(c):04X}" for c in KEY),
    "unicode escaped again": "".join(f"\\\\u{ord(c):04x}" for c in KEY),
    "braces": "".join(f"\\u{{{ord(c):x}}}" for c in KEY),
    "hex escapes": "".join(f"\\x{ord(c):02x}" for c in KEY),
    "octal": "".join(f"\\{ord(c):03o}" for c in KEY),
    "some unicode": KEY.replace("/", "\\u002f").replace("+", "\\u002B"),
    "percent": urllib.parse.quote(KEY, safe=""),
    "percent twice": urllib.parse.quote(urllib.parse.quote(KEY, safe=""), safe=""),
    "percent of all": "".join(f"%{ord(c):02x}" for c in KEY),
    "html": html.escape(KEY),
    "html twice": html.escape(html.escape(KEY)),
    "html numbers": "".join(f"&#{ord(c)};" for c in KEY),
    "html hex": "".join(f"&#x{ord(c):X};" for c in KEY),
    "html names": KEY.replace("/", "&sol;").replace("+", "&plus;").replace("=", "&equals;").replace("&1", "&amp;1"),
    "newline": KEY[:5] + "\n" + KEY[5:],
    "escaped newline": KEY[:5] + "\\r\\n" + KEY[5:],
    "percent newline": KEY[:5] + "%0A" + KEY[5:],
    "spaced": " ".join(KEY),
    "unseen": "\u200b".join(KEY),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64 of a header": base64.b64encode(f"Bearer {KEY} ".encode()).decode(),
    "base64 of more": base64.b64encode(f"key={KEY}, and so on".encode()).decode(),
    "base64 at the third place": base64.b64encode(f"is {KEY[:0]}: {KEY}".encode()).decode(),
    "urlsafe": base64.urlsafe_b64encode(f"{KEY}??>>".encode()).decode(),
    "base64 in json": json.dumps(base64.b64encode(KEY.encode()).decode()).replace("/", "\\/"),
    "base64 in lines": base64.encodebytes((KEY * 3).encode()).decode(),
    "hexadecimal": KEY.encode().hex(),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling(name):
    shown = masked(f"before {SPELLINGS[name]} after", KEY)
    left = "[key]"
    if "base64" in name or name == "urlsafe":  # characters that the key does not decide alone stay
        whole = base64.b64encode(KEY.encode()).decode()
        left = shown.removeprefix("before ").removesuffix(" after")
        assert left.count("[key]") == (3 if name == "base64 in lines" else 1)
        assert not any(whole[i : i + 6] in left for i in range(len(whole) - 6))
        assert len(left) < len(SPELLINGS[name])
    assert shown == f"before {left} after"


def test_what_is_not_the_key_stays():
    other = 'sk-a/b+c=d&1<2>~x.Y_ {"error": "%2F \\u002f &#61; no such key"} ' + base64.b64encode(b"something").decode()
    assert masked(other, KEY) == other
    assert masked("anything", "") == "anything"
    assert masked("a\\1b (k) k", "(k)", r"\1") == "a\\1b \\1 k"


def test_a_long_answer_is_searched_in_time():
    for text in ("s" * 200_000, "sk-" * 60_000, "\n" * 200_000, "s\n" * 100_000, "\\" * 200_000, "%25" * 60_000):
        assert masked(text, KEY) == text
