"""Writes tests/golden/kern/dequant.bin: rows of each matrix type as GGUF stores them and as the
`gguf` package (ggml's own) dequantises them. Run from the root: python3 tests/golden/make/dequant.py

A record is int32 type, n, k, then the n rows' bytes, then n·k float32. The file ends with type -1."""

import struct

import gguf
import numpy as np

T = gguf.GGMLQuantizationType
rng = np.random.default_rng(20)

with open("tests/golden/kern/dequant.bin", "wb") as out:
    for kind in (T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1):
        n, k = 19, 96
        block, size = gguf.GGML_QUANT_SIZES[kind]
        if kind == T.F32:
            raw = rng.standard_normal((n, k)).astype(np.float32).view(np.uint8)
        elif block == 1:
            raw = rng.integers(0, 0x7c00 if kind == T.F16 else 0x7f80, (n, k)).astype(np.uint16)
            raw |= rng.integers(0, 2, (n, k)).astype(np.uint16) << 15
            raw = raw.view(np.uint8)
        else:
            raw = rng.integers(0, 256, (n, k // block, size)).astype(np.uint8)
            n_scales = 2 if kind == T.Q4_1 else 1
            scales = rng.integers(0, 0x7c00, (n, k // block, n_scales)).astype(np.uint16)
            scales |= rng.integers(0, 2, scales.shape).astype(np.uint16) << 15
            raw[:, :, : 2 * n_scales] = scales.view(np.uint8)
            raw = raw.reshape(n, -1)
        values = gguf.dequantize(np.ascontiguousarray(raw), kind).astype(np.float32)
        assert values.shape == (n, k)
        out.write(struct.pack("<iii", int(kind), n, k) + raw.tobytes() + values.tobytes())
    out.write(struct.pack("<i", -1))
