#!/usr/bin/env python3
"""Writes split-0000N-of-00003.gguf into a folder, with the Python package gguf (0.19.0), the
format's own implementation. tests/gguf/test_gguf_split.c knows what is in them from this script."""

import sys

import numpy as np
from gguf import GGUFWriter

writer = GGUFWriter(sys.argv[1] + "/split.gguf", "llama", split_max_tensors=2)
writer.add_string("test.text", "stands in the first file")
for i, name in enumerate(["e", "b", "d", "a", "c"]):
    writer.add_tensor(name, np.full(4 + i, 10 * i, dtype=np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
