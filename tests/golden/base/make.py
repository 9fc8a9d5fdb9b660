#!/usr/bin/env python3
"""Golden data of tests/base from Python's own UTF-8 decoder and JSON writer.

Writes json.txt beside this script (hexadecimal text, hexadecimal JSON); prints the digests that
tests/base/test_utf8.c compares: FNV-1a over what Python makes of every string of up to four of
the bytes at which the rules of Unicode's table 3-7 change, and over every code point's encoding."""

import codecs
import itertools
import json
import os
import random
import struct

EDGES = bytes.fromhex("00417f808f909fa0bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5ff")


def fnv(data, digest=0xCBF29CE484222325):
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return digest


def steps(data):
    """(length, code point or -1) of each character or maximal broken prefix."""
    at = 0
    while at < len(data):
        try:
            text, bad = data[at:].decode(), None
        except UnicodeDecodeError as error:
            text, bad = data[at : at + error.start].decode(), error.end - error.start
        for character in text:
            yield len(character.encode()), ord(character)
        at += len(text.encode())
        if bad:
            yield bad, -1
            at += bad


def complete(data):
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    pending = decoder.getstate()[0]
    if pending[:1] == b"\xed" and pending[1:] >= b"\xa0":
        return len(data)  # Python waits for the rest of a surrogate, which cannot be right
    return len(data) - len(pending)


digest = fnv(b"")
for length in range(1, 5):
    for combination in itertools.product(EDGES, repeat=length):
        data = bytes(combination)
        for size, cp in steps(data):
            digest = fnv(struct.pack("<Bi", size, cp), digest)
        digest = fnv(bytes([complete(data)]), digest)
print(f"decoded  {digest:#018x}")
everything = "".join(chr(cp) for cp in range(0x110000) if not 0xD800 <= cp < 0xE000)
print(f"encoded  {fnv(everything.encode()):#018x}")

draw = random.Random(1)
texts = [bytes([c]) for c in range(0x20)] + [b'"', b"\\", b"/", b"\x7f", b"plain", b""]
texts += ["é\u2028\u2029\ufeff\ufffe\U0001f600".encode(), b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]
texts += [bytes(draw.choice(EDGES + b'"\\\n\x1b ') for _ in range(draw.randrange(1, 16))) for _ in range(120)]
with open(os.path.join(os.path.dirname(__file__), "json.txt"), "w", encoding="ascii") as out:
    for data in texts:
        text = data.decode("utf-8", "replace")
        written = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
        assert json.loads(written) == text
        out.write(f"{data.hex()} {written[1:-1].encode().hex()}\n")
