"""Writes tests/golden/tokenizer/: what Hugging Face's tokenizers (and Python's own Unicode tables)
say about texts that are hard to tokenize. Needs the packages tokenizers and gguf, and Python 3.11
or 3.12, whose Unicode version no supported PCRE2 or utf8proc is older than; and sentencepiece for
the vocabulary that it makes. Run from the root:
python3 tests/golden/make/tokenizer.py DEFAULT-MODEL.gguf

  pretok.txt    pre-tokenizer, text in hex, lengths of the pieces in bytes
  nfc.txt       text in hex, the same in normalisation form C
  unigram.gguf  a small vocabulary of the unigram model, with a map of characters
  MODEL.txt     text in hex, ids (special tokens found everywhere, no BOS)

python3 tests/golden/make/tokenizer.py --vocabularies FOLDER

writes the same, X.gguf.ids, for each *bert*.gguf of a folder (WordPiece, unigram): thousands of
texts, half of them any code points (for tests/text/test_vocab_oracle.c)."""

import glob
import io
import json
import random
import sys
import tempfile
import unicodedata

import gguf
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

OUT = "tests/golden/tokenizer/"

# ---- patterns, as the tokenizer.json files of the models have them ----

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


def cased(upper, lower, end):
    prefix = r"[^\r\n\p{L}\p{N}]?"
    return f"{prefix}{upper}*{lower}+{end}|{prefix}{upper}+{lower}*{end}"


UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
NOT_HAN = r"&&[^\p{Han}]"

PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + TAIL],
    "qwen2": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + TAIL],
    "qwen35": [
        CONTRACTION
        + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
        + SPACES
    ],
    "falcon": [r"[\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES,
    ],
    "tekken": [cased(f"[{UPPER}]", f"[{LOWER}]", "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES],
    "gpt-4o": [
        cased(f"[{UPPER}]", f"[{LOWER}]", CONTRACTION + "?")
        + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
        + SPACES
    ],
    "kimi-k2": [
        r"[\p{Han}]+|"
        + cased(f"[{UPPER}{NOT_HAN}]", f"[{LOWER}{NOT_HAN}]", CONTRACTION + "?")
        + r"|\p{N}{1,3}|"
        + TAIL
    ],
    "seed-coder": [
        CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|" + SPACES
    ],
    "bailingmoe": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "default": [r"[\p{P}$+<=>^~|`]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
}


def splitter(name):
    return [pre_tokenizers.Split(Regex(p), "isolated") for p in PATTERNS[name]]


# ---- texts ----

TEXTS = [
    "", " ", "  ", "\n", "\t", " \n \r\n\t ", "a", "Hello world", " Hello", "Hello ", "  Hello  ",
    "Hello, y'all! How are you? I'm fine; they've gone, we'll see, she'd say 'twas 'SO' 'LL 'RE.",
    "x'\u017fab don\u2019t", "3 33 333 3333 33333 1234567890", "\u0663\u0664 \u2163 \u00bd x\u00b2",
    "iPhone toString HTTPServer XMLHttpRequest ABC aBC", "def f(x):\n    return x**2  # ok\n\n\n",
    "https://example.org/a/b?c=d&e=f#g //\n/", "!!!??? ... --- <<<>>> $$$ +=+ ~~ || ``", "\x00\x01\x1c\x1f\x7f",
    "a\u180eb \u180e c", "a\u200bb\ufeffc\u00adx", "a\u00a0b\u3000c\u2003\u2003d\u2028e\u0085f\u1680g",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01 \u65e5\u672c\u8a9e\u3005\u3007\u30ab\u30bf\u30ab\u30ca \ud55c\uae00 12\u30073",
    "foo  \u4f60\u597d  \u4f60 bar", "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u0422\u0415\u041a\u0421\u0422 \u01c5\u02b0",
    "e\u0301 re\u0301sume\u0301 \u00e9 \u212b \ufb01 a\u0323\u0301 a\u0301\u0323", "\u0915\u094d\u0937\u093f \u0e01\u0e33 \u05e9\u05c1",
    "\U0001f389\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f", "\U00010400\U00010428\U0001e900",
    " " * 70 + "x", "x" + " " * 33 + "\n" * 5 + "y", "a" * 100, "ab" * 60, "7" * 41, "\u2581x\u2581\u2581y",
    "<0x41> <0xFF> [PAD7]",
]  # fmt: skip

# Words: accents, case, compatibility, marks of every order, the longest ones that are still words.
WORDS = [
    "Na\u00efve caf\u00e9 \u0130stanbul \u01c5 \u00df \u1e9e \u03a3\u03c2 \u212b", "\ufb01t \ufb00 \u00bd \u338f \u2122",
    "e\u0323\u0302x \u1ec7 e\u0301 \u1100\u1161\u11a8 \uac01", "\uff46\uff55\uff4c\uff4c!\uff01", "a\r\nb\r\n\tc",
    "y" * 100, "y" * 101, "\u4e2d\u6587abc\u4e2d \uf900\u2f800", "a\u200bb\u200dc\ufeffd\ufffde\x00f\x0bg\x85h", "$5+5=10^1~`|",
    "\u2581a\u2581\u2581b \u2581", "\u037e \u1fef \u166d \u061d", "abcde xabcdex", "<sep>a<sep> b <unk>",
]  # fmt: skip


def assigned_blocks():
    blocks = {}
    for cp in range(0x110000):
        if unicodedata.category(chr(cp)) not in ("Cn", "Cs", "Co"):
            blocks.setdefault(cp >> 7, []).append(chr(cp))
    return list(blocks.values())


def random_text(rng, blocks, special):
    out = []
    for _ in range(rng.randrange(1, 14)):
        kind = rng.random()
        if kind < 0.3:
            out.append(rng.choice(TEXTS)[:12])
        elif kind < 0.6:
            out.append("".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(1, 6))))
        elif kind < 0.9 or not special:
            block = rng.choice(blocks)
            out.append("".join(rng.choice(block) for _ in range(rng.randrange(1, 4))))
        else:
            out.append(rng.choice(special))
    return "".join(out)


def texts(n, seed, special=()):
    rng, blocks = random.Random(seed), assigned_blocks()
    return TEXTS + [random_text(rng, blocks, special) for _ in range(n)]


# ---- vocabularies ----


def open_model(path):
    """The tokenizer of a GGUF file as Hugging Face's, and its special tokens."""
    fields = gguf.GGUFReader(path).fields

    def get(name):
        field = fields.get("tokenizer.ggml." + name)
        return field.contents() if field else None

    tokens, types, pre = get("tokens"), get("token_type"), get("pre")
    vocab = {}
    for i, token in enumerate(tokens):
        vocab.setdefault(token, i)
    if get("model") == "gpt2":
        merges = [(m[: m.index(" ", 1)], m[m.index(" ", 1) + 1 :]) for m in get("merges")]
        t = Tokenizer(models.BPE(vocab, merges, ignore_merges=pre == "llama-bpe"))
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        t.pre_tokenizer = pre_tokenizers.Sequence(splitter(pre) + [byte_level])
    elif get("model") == "bert":
        t = wordpiece(tokens, types, get("normalizer.lowercase"))
    elif get("model") == "t5":
        t = unigram(tokens, types, get("scores"), get("unknown_token_id"), get("precompiled_charsmap"))
    else:
        t = Tokenizer(spm_model(vocab, tokens, types, get("scores")))
        steps = [] if get("add_space_prefix") is False else [normalizers.Prepend("\u2581")]
        t.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", "\u2581")])
    special = [i for i in range(len(tokens)) if types[i] in (2, 3, 4)]
    state = json.loads(t.to_str())
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False)
    state["added_tokens"] = [dict(id=i, content=tokens[i], special=types[i] != 4, **flags) for i in special]
    return Tokenizer.from_str(json.dumps(state)), [tokens[i] for i in special]


def wordpiece(tokens, types, lowercase):
    """As transformers' BertTokenizer has it; files write the beginning of a word, not the rest."""
    vocab = {}
    for i, token in enumerate(tokens):
        if types[i] == 1:
            token = token[1:] if token[0] == "\u2581" and len(token) > 1 else "##" + token
        vocab.setdefault(token, i)
    t = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase is not False)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return t


def unigram(tokens, types, scores, unknown, charsmap):
    """As transformers' XLMRobertaTokenizer and T5Tokenizer have it. Types 5: filler."""
    n = max(i for i in range(len(tokens)) if types[i] != 5) + 1
    t = Tokenizer(models.Unigram(list(zip(tokens[:n], scores[:n])), unk_id=unknown, byte_fallback=False))
    if charsmap:
        t.normalizer = normalizers.Precompiled(bytes(charsmap))
    metaspace = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    return t


def spm_model(vocab, tokens, types, scores):
    """Merges that a vocabulary with scores implies, best first."""
    merges = []
    for token, i in vocab.items():
        for k in range(1, len(token) if types[i] in (1, 4) else 0):
            if token[:k] in vocab and token[k:] in vocab:
                merges.append((-scores[i], i, vocab[token[:k]], token[:k], token[k:]))
    unknown = types.index(2)
    pairs = [(a, b) for *_, a, b in sorted(merges)]
    return models.BPE(vocab, pairs, byte_fallback=True, unk_token=tokens[unknown], fuse_unk=True)


# ---- output ----


def write(name, rows):
    with open(OUT + name + ".txt", "w") as out:
        for row in rows:
            out.write("\t".join(row) + "\n")


def hexed(text):
    return text.encode().hex()


def pretok_rows():
    for name in PATTERNS:
        sequence = pre_tokenizers.Sequence(splitter(name))
        for text in texts(40, name)[1:]:
            pieces = [piece for piece, _ in sequence.pre_tokenize_str(text)]
            assert "".join(pieces) == text
            yield name, hexed(text), " ".join(str(len(p.encode())) for p in pieces)


def nfc_rows():
    rng, blocks = random.Random("nfc"), assigned_blocks()
    marks = [c for block in blocks for c in block if unicodedata.combining(c)]
    changed = [c for b in blocks for c in b if unicodedata.normalize("NFC", c) != c]
    parts = [c for b in blocks for c in b if unicodedata.decomposition(c)]
    for _ in range(300):
        text = "".join(
            rng.choice(rng.choice(("aeiou\u1100\u1161\u11a8\uac00", marks, marks, changed, parts)))
            for _ in range(rng.randrange(1, 9))
        )
        yield hexed(text), hexed(unicodedata.normalize("NFC", text))


def model_rows(path, n, more=()):
    tokenizer, special = open_model(path)
    for text in texts(n, path.rsplit("/", 1)[-1], special) + list(more):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        yield hexed(text), " ".join(map(str, ids))


# ---- a vocabulary of the unigram model ----

CORPUS = """Beautiful is better than ugly. Explicit is better than implicit. Simple is better than
complex. Complex is better than complicated. Flat is better than nested. Sparse is better than dense.
Readability counts, caf\u00e9, na\u00efve, \u1ec7, stra\u00dfe, \u65e5\u672c, 1/2, fi, fl, hello world."""

RULES = (
    [(f"{c:X}", f"{c + 32:X}") for c in range(0x41, 0x5B)]
    + [("9", "20"), ("A", "20"), ("D", "20"), ("D A", "20"), ("3000", "20"), ("A0", "20")]
    + [("200B", ""), ("FB01", "66 69"), ("FB02", "66 6C"), ("BD", "31 2F 32"), ("FF01", "21")]
    + [("65 301", "E9"), ("65 323", "1EB9"), ("65 323 302", "1EC7"), ("1EB9 302", "1EC7")]
    + [("69 308", "EF"), ("308", ""), ("61 62 63 64 65", "65")]
)


def write_unigram(path):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write("".join(f"{a}\t{b}\n" for a, b in RULES))
        rules.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS.split("\n")), model_writer=model, vocab_size=140,
            model_type="unigram", normalization_rule_tsv=rules.name, hard_vocab_limit=False,
            user_defined_symbols=["<sep>"], minloglevel=2,
        )  # fmt: skip
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    w = gguf.GGUFWriter(path, "t5")
    w.add_tokenizer_model("t5")
    w.add_tokenizer_pre("default")
    w.add_token_list([p.piece.encode() for p in proto.pieces])
    w.add_token_scores([p.score for p in proto.pieces])
    w.add_token_types([p.type for p in proto.pieces])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_space_prefix(True)
    w.add_precompiled_charsmap(proto.normalizer_spec.precompiled_charsmap)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


# ---- whole vocabularies ----


def any_text(rng):
    kinds = ((0x20, 0x250), (0x20, 0x3000), (0x20, 0xD800), (0xE000, 0x20000), (0x20, 0x21), (0x61, 0x62))
    return "".join(chr(rng.randrange(*rng.choice(kinds))) for _ in range(rng.randrange(1, 12)))


def write_vocabularies(folder, n):
    for path in sorted(glob.glob(folder + "/*bert*.gguf")):
        tokenizer, special = open_model(path)
        name = path.rsplit("/", 1)[-1]
        rng = random.Random(name)
        with open(path + ".ids", "w") as out:
            for text in texts(n, name, special) + WORDS + [any_text(rng) for _ in range(n)]:
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                out.write(hexed(text) + "\t" + " ".join(map(str, ids)) + "\n")


if sys.argv[1] == "--vocabularies":
    write_vocabularies(sys.argv[2], 2000)
    sys.exit()
write("pretok", pretok_rows())
write("nfc", nfc_rows())
write_unigram(OUT + "unigram.gguf")
write("unigram", model_rows(OUT + "unigram.gguf", 150, WORDS))
for model in ("llama", "llama-tied-mqa", "gemma3"):
    write(model, model_rows(f"tests/golden/models/{model}.gguf", 60))
write("bert", model_rows("tests/golden/models/bert.gguf", 150, WORDS))
write("smollm2", model_rows(sys.argv[1], 150))
