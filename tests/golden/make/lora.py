"""A LoRA adapter for a model, as the common converter writes it: random, of rank 4 in float16.

    python lora.py MODEL.gguf ADAPTER.gguf"""
import sys

import gguf
import numpy as np

RANK, ALPHA = 4, 8.0
TARGETS = ("attn_q.weight", "attn_v.weight", "ffn_down.weight")


def main(model, adapter):
    reader = gguf.GGUFReader(model)
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(adapter, reader.fields["general.architecture"].contents())
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, ALPHA)
    for tensor in reader.tensors:
        if not tensor.name.endswith(TARGETS):
            continue
        rows, columns = tensor.data.shape
        a = rng.normal(size=(RANK, columns)) / np.sqrt(columns)
        b = rng.normal(size=(rows, RANK)) / np.sqrt(RANK) / 4
        writer.add_tensor(tensor.name + ".lora_a", a.astype(np.float16))
        writer.add_tensor(tensor.name + ".lora_b", b.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main(*sys.argv[1:3])
