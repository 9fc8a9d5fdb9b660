#!/usr/bin/env python3
"""Writes a GGUF of a real model's shape with random weights, to time sizes that no small package has.
Its answers mean nothing.

    random_model.py --tokens-of SmolLM2.gguf --type Q4_0 OUT.gguf     (16 layers of 2048/8192: 1 B)

Needs the Python packages gguf and numpy. The tokenizer is that of another file."""
import argparse
import gguf, numpy

SCALES = {"Q4_0": 2, "Q8_0": 2, "Q4_K": 4, "Q5_K": 4, "Q6_K": 2, "Q4_1": 4, "IQ4_XS": 2}  # bytes of a block's f16 scales


def blocks(rng, rows, columns, name):
    """Random quants under small scales."""
    kind = gguf.GGMLQuantizationType[name]
    size, width = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows, columns // size, width), dtype=numpy.uint8)
    at = width - 2 if name == "Q6_K" else 0  # where the scales stand
    n = SCALES[name] // 2
    scale = numpy.full(n, 2e-4 if name in ("Q4_K", "Q5_K", "Q6_K", "IQ4_XS") else 4e-3, numpy.float16)
    data[:, :, at:at + 2 * n] = scale.view(numpy.uint8)
    return data.reshape(rows, -1)


def copy_keys(source, writer, wanted):
    """The keys of a file that begin with `wanted`."""
    for key, field in source.fields.items():
        if key.startswith(wanted):
            sub = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], sub)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", metavar="OUT.gguf")
    p.add_argument("--tokens-of", required=True, metavar="GGUF")
    p.add_argument("--type", default="Q4_0", choices=SCALES)
    for name, n in (("layers", 16), ("embd", 2048), ("ff", 8192), ("heads", 32), ("kv-heads", 8)):
        p.add_argument("--" + name, type=int, default=n)
    a = p.parse_args()
    rng = numpy.random.default_rng(1)
    source = gguf.GGUFReader(a.tokens_of)
    w = gguf.GGUFWriter(a.out, "llama")
    copy_keys(source, w, "tokenizer.")
    n_vocab = len(source.fields["tokenizer.ggml.tokens"].data)
    d_head = a.embd // a.heads
    w.add_name(f"random {a.type}")
    w.add_block_count(a.layers)
    w.add_context_length(8192)
    w.add_embedding_length(a.embd)
    w.add_feed_forward_length(a.ff)
    w.add_head_count(a.heads)
    w.add_head_count_kv(a.kv_heads)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(1e5)
    w.add_rope_dimension_count(d_head)
    w.add_vocab_size(n_vocab)
    kind = gguf.GGMLQuantizationType[a.type]

    def matrix(name, rows, columns):
        w.add_tensor(name, blocks(rng, rows, columns, a.type), raw_dtype=kind)

    matrix("token_embd.weight", n_vocab, a.embd)
    for i in range(a.layers):
        for name, rows, columns in (("attn_q", a.embd, a.embd), ("attn_k", a.kv_heads * d_head, a.embd),
                                    ("attn_v", a.kv_heads * d_head, a.embd), ("attn_output", a.embd, a.embd),
                                    ("ffn_gate", a.ff, a.embd), ("ffn_up", a.ff, a.embd), ("ffn_down", a.embd, a.ff)):
            matrix(f"blk.{i}.{name}.weight", rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            w.add_tensor(f"blk.{i}.{name}.weight", numpy.ones(a.embd, numpy.float32))
    w.add_tensor("output_norm.weight", numpy.ones(a.embd, numpy.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file(progress=True)
    w.close()


if __name__ == "__main__":
    main()
