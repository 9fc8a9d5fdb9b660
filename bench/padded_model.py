#!/usr/bin/env python3
"""Writes a llama model once more in F32, its width filled up with zeros to a multiple of 256: the same function,
but every matrix can have blocks of 256, so that accuracy.py meets them all with real weights.

    padded_model.py SmolLM2.gguf OUT.gguf

Needs the Python packages gguf and numpy. New numbers of a state are zeros, and so are the values of new heads;
norms divide by more numbers, which their weights and epsilon make good."""
import argparse
import gguf, numpy
from random_model import copy_keys

BLOCK = 256


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", metavar="MODEL.gguf")
    p.add_argument("out", metavar="OUT.gguf")
    a = p.parse_args()
    source = gguf.GGUFReader(a.model)
    embd, ff, layers, context, vocab, heads, kv_heads, eps = (source.fields["llama." + key].contents() for key in (
        "embedding_length", "feed_forward_length", "block_count", "context_length", "vocab_size",
        "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon"))
    d_head, wide = embd // heads, -(-embd // BLOCK) * BLOCK
    if wide % d_head or wide * kv_heads % embd or ff % BLOCK:
        raise SystemExit(f"heads of {d_head} or a feed-forward of {ff} do not fit a width of {wide}")
    w = gguf.GGUFWriter(a.out, "llama")
    for keys in ("tokenizer.", "llama.rope."):
        copy_keys(source, w, keys)
    w.add_name("padded")
    w.add_block_count(layers)
    w.add_context_length(context)
    w.add_embedding_length(wide)
    w.add_feed_forward_length(ff)
    w.add_head_count(wide // d_head)
    w.add_head_count_kv(kv_heads * wide // embd)
    w.add_layer_norm_rms_eps(eps * embd / wide)
    w.add_vocab_size(vocab)
    size = {embd: wide, d_head * kv_heads: d_head * kv_heads * wide // embd}
    for t in source.tensors:
        data = gguf.dequantize(t.data, t.tensor_type).astype(numpy.float32)
        if t.name.endswith("norm.weight"):
            data = data * numpy.float32((embd / wide) ** 0.5)
        w.add_tensor(t.name, numpy.pad(data, [(0, size.get(n, n) - n) for n in data.shape]))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
