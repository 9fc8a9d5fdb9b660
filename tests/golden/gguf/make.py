#!/usr/bin/env python3
"""Writes small.gguf with the Python package gguf (0.19.0), the format's own implementation.
tests/gguf/test_gguf.c knows what is in it from this script."""

import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, quants

writer = GGUFWriter(sys.argv[1], "llama")
writer.add_custom_alignment(64)
writer.add_uint8("test.u8", 200)
writer.add_int8("test.i8", -100)
writer.add_uint16("test.u16", 60000)
writer.add_int16("test.i16", -30000)
writer.add_uint32("test.u32", 4000000000)
writer.add_int32("test.i32", -2000000000)
writer.add_uint64("test.u64", 2**64 - 2)
writer.add_int64("test.i64", -(2**63))
writer.add_float32("test.f32", 0.1)
writer.add_float64("test.f64", 0.1)
writer.add_bool("test.yes", True)
writer.add_bool("test.no", False)
writer.add_string("test.text", "naïve Ġ 語 \U0001f600\n")
writer.add_key_value("test.ints", [1, -2, 3], GGUFValueType.ARRAY, GGUFValueType.INT32)
writer.add_array("test.floats", [0.5, -1.25, 3.0, 1e30])
writer.add_array("test.bools", [True, False, True])
writer.add_array("test.words", ["", "a", "two words", "ä"])

writer.add_tensor("f32", np.arange(12, dtype=np.float32).reshape(3, 4))
writer.add_tensor("f16", np.array([0.5, -2.0], dtype=np.float16))
writer.add_tensor("i32", np.arange(24, dtype=np.int32).reshape(2, 1, 3, 4))
rows = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
for kind in (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_1, GGMLQuantizationType.BF16):
    writer.add_tensor(kind.name.lower(), quants.quantize(rows, kind), raw_dtype=kind)

writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
