"""Models that say what a script wants: real files for the real server, sampler and parsers.

The next token follows from the last one alone. Every token has a code, a row of 256 signs; the row
of its successor in the output matrix is that code (the sum, of several), so that its logit is 256
and others are near 0: it is drawn at any sane temperature, unless a grammar forbids it. The one
layer's weights are 0.

    … <|turn1|>  ─▶  "Let"  ─▶  " me"  ─▶  "<tool_call>"  ─▶  …  ─▶  <|im_end|>

The template ends a prompt with <|turnN|>, N being the number of assistant messages in it; or with
<|plain|> when the request has no tools. Each step of a script has a token of its own, though texts
repeat; text of prompts is tokenized in bytes."""

import random
import struct

WIDTH, HEAD = 256, 32
END = "<|im_end|>"
STOPS = ("<|call|>", "<|return|>")

def chatml(call):
    """A template that writes chats as ChatML, and calls in the dialect that it is recognised by."""
    return (
        "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
        "{% for c in m.tool_calls or [] %}{% set f = c.function %}"
        + call
        + "{% endfor %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% if tools %}"
        "<|turn{{ messages | selectattr('role', 'equalto', 'assistant') | list | length }}|>"
        "{% else %}<|plain|>{% endif %}{% endif %}"
    )


HERMES = chatml("<tool_call>\n{{ f | tojson }}\n</tool_call>")
NORMAL, CONTROL = 1, 3


def printable():
    """GPT-2's letters for the 256 bytes, in their order."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(moved)) for b in range(256)]


def pieces(text, specials, rng):
    """Cuts a text as tokens might: at any byte, with special tokens whole."""
    at, data = 0, text.encode()
    marks = sorted((s.encode() for s in specials), key=len, reverse=True)
    while at < len(data):
        mark = next((m for m in marks if data.startswith(m, at)), None)
        end = at + len(mark) if mark else min(at + rng.randint(1, 7), len(data))
        nearest = min((p for m in marks if (p := data.find(m, at + 1)) > 0), default=end)
        yield data[at : end if mark else min(end, nearest)], mark is not None
        at = end if mark else min(end, nearest)


def write_string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def write_value(value):
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + write_string(value)
    item = 8 if not value or isinstance(value[0], str) else 5
    each = write_string if item == 8 else lambda i: struct.pack("<i", i)
    return struct.pack("<IIQ", 9, item, len(value)) + b"".join(map(each, value))


def write_gguf(path, metadata, tensors):
    """tensors: (name, row length, rows of floats)."""
    head, offset = b"", 0
    for name, width, rows in tensors:
        dims = (width, len(rows)) if len(rows) > 1 or "norm" not in name else (width,)
        head += write_string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        head += struct.pack("<IQ", 0, offset)
        offset += -(-width * len(rows) * 4 // 32) * 32
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
        f.write(b"".join(write_string(k) + write_value(v) for k, v in metadata.items()) + head)
        for _, width, rows in tensors:
            f.write(bytes(-f.tell() % 32))
            f.write(b"".join(struct.pack(f"<{width}f", *row) for row in rows))
        f.write(bytes(-f.tell() % 32))


def scripted_model(path, turns, plain="Fine.", template=HERMES, specials=(), context=1 << 18):
    """A model that says turns[n] in turn n, and `plain` where there are no tools. specials: texts
    that are one token each, as in the dialect's own vocabulary. Gives path as a string."""
    rng = random.Random(1)
    letters = printable()
    starts = ["<|plain|>", *(f"<|turn{n}|>" for n in range(len(turns)))]
    marks = ["<|im_start|>", END, *starts, *specials]
    tokens, types = [*letters, *marks], [NORMAL] * 256 + [CONTROL] * len(marks)
    follows = {}  # of a token: the one before it
    end = tokens.index(END)
    for start, text in zip(starts, [plain, *turns]):
        last = tokens.index(start)
        stop = next((m for m in STOPS if m in specials and text.endswith(m)), "")
        for data, special in pieces(text.removesuffix(stop), specials, rng):
            tokens.append(data.decode() if special else "".join(letters[b] for b in data))
            types.append(CONTROL if special else NORMAL)
            follows.setdefault(len(tokens) - 1, []).append(last)
            last = len(tokens) - 1
        follows.setdefault(tokens.index(stop) if stop else end, []).append(last)
    codes = [[rng.choice((-1.0, 1.0)) for _ in range(WIDTH)] for _ in tokens]
    nothing = [0.0] * WIDTH
    output = [
        [sum(c) for c in zip(*(codes[p] for p in follows[t]))] if t in follows else nothing
        for t in range(len(tokens))
    ]
    square, narrow = [nothing] * WIDTH, [nothing] * HEAD
    back = [[0.0] * HEAD] * WIDTH
    metadata = {
        "general.architecture": "llama",
        "general.name": "scripted",
        "llama.block_count": 1,
        "llama.context_length": context,
        "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": WIDTH,
        "llama.attention.head_count": 1,
        "llama.attention.head_count_kv": 1,
        "llama.attention.key_length": HEAD,
        "llama.attention.value_length": HEAD,
        "llama.rope.dimension_count": HEAD,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": end,
        "tokenizer.chat_template": template,
    }
    tensors = [
        ("token_embd.weight", WIDTH, codes),
        ("output.weight", WIDTH, output),
        ("output_norm.weight", WIDTH, [[1.0] * WIDTH]),
        ("blk.0.attn_norm.weight", WIDTH, [[1.0] * WIDTH]),
        ("blk.0.ffn_norm.weight", WIDTH, [[1.0] * WIDTH]),
        ("blk.0.attn_q.weight", WIDTH, narrow),
        ("blk.0.attn_k.weight", WIDTH, narrow),
        ("blk.0.attn_v.weight", WIDTH, narrow),
        ("blk.0.attn_output.weight", HEAD, back),
        ("blk.0.ffn_gate.weight", WIDTH, square),
        ("blk.0.ffn_up.weight", WIDTH, square),
        ("blk.0.ffn_down.weight", WIDTH, square),
    ]
    write_gguf(path, metadata, tensors)
    return str(path)
