"""A model whose tensors are of many types, and its twin in float32.

    python mixed.py FLOAT32.gguf MIXED.gguf TWIN.gguf

Each tensor of a float32 file is stored in the next of several types; the twin holds in float32 what
those bytes mean, by gguf-py's own dequantisation."""
import sys

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

T = gguf.GGMLQuantizationType
MATRIX = [T.Q8_0, T.F16, T.BF16, T.F32, T.Q4_0, T.F16, T.Q4_1]
VECTOR = [T.F16, T.F32, T.BF16]


def copy_metadata(reader, writer):
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub_type=sub)


def main(source, mixed, twin):
    reader = gguf.GGUFReader(source)
    arch = reader.fields["general.architecture"].contents()
    writers = [gguf.GGUFWriter(path, arch) for path in (mixed, twin)]
    for writer in writers:
        copy_metadata(reader, writer)
    turn = 0
    for tensor in reader.tensors:
        data = np.array(tensor.data, dtype=np.float32)
        kinds = VECTOR if data.ndim == 1 else MATRIX
        kind = kinds[turn % len(kinds)]
        turn += 1
        packed = quantize(data, kind)
        writers[0].add_tensor(tensor.name, packed, raw_dtype=kind)
        writers[1].add_tensor(tensor.name, dequantize(packed, kind).astype(np.float32))
    for writer in writers:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


main(*sys.argv[1:4])
