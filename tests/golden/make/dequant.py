"""Writes tests/golden/kern/dequant.bin: rows of each matrix type as GGUF stores them and as the
`gguf` package (ggml's own) dequantises them. Run from the root: python3 tests/golden/make/dequant.py

A record is int32 type, n, k, bytes of a row, then the n rows' bytes, then n·k float32. The file ends
with type -1."""

import struct

import gguf
import numpy as np

T = gguf.GGMLQuantizationType
rng = np.random.default_rng(20)

# Where a block keeps its binary16 numbers.
HALVES = {
    T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.IQ4_NL: [0], T.MXFP4: [],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_XS: [0],
    T.IQ2_XXS: [0], T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0], T.IQ3_S: [0], T.IQ1_S: [0],
    T.IQ1_M: [], T.TQ1_0: [52], T.TQ2_0: [64],
}  # fmt: skip


def halves(shape):
    """Finite ones of either sign, as bytes."""
    x = rng.integers(0, 0x7C00, shape).astype(np.uint16) | rng.integers(0, 2, shape).astype(np.uint16) << 15
    return np.ascontiguousarray(x[..., None]).view(np.uint8)


def random_rows(kind, n, k):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    if kind == T.F32:
        return rng.standard_normal((n, k)).astype(np.float32).view(np.uint8)
    if kind == T.F16:
        return halves((n, k)).reshape(n, -1)
    if kind == T.BF16:
        raw = rng.integers(0, 0x7F80, (n, k)).astype(np.uint16) | rng.integers(0, 2, (n, k)).astype(np.uint16) << 15
        return raw.view(np.uint8)
    raw = rng.integers(0, 256, (n, k // block, size)).astype(np.uint8)
    for at in HALVES[kind]:
        raw[:, :, at : at + 2] = halves((n, k // block))
    if kind == T.IQ1_M:  # the scale's top four bits: an exponent below 16
        raw[:, :, 55] &= 0xBF
    return raw.reshape(n, -1)


with open("tests/golden/kern/dequant.bin", "wb") as out:
    for kind in [T.F32, T.F16, T.BF16, *HALVES]:
        n, k = (3, 512) if gguf.GGML_QUANT_SIZES[kind][0] == 256 else (19, 96)
        raw = np.ascontiguousarray(random_rows(kind, n, k))
        values = gguf.dequantize(raw, kind).astype(np.float32)
        assert values.shape == (n, k)
        out.write(struct.pack("<iiii", int(kind), n, k, raw.shape[1]) + raw.tobytes() + values.tobytes())
    out.write(struct.pack("<i", -1))
