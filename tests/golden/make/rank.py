"""Tiny random models that rank documents, with the scores that transformers computes in float64.

    python rank.py MODELS_FOLDER

Needs torch, transformers, tokenizers and gguf. Names of tensors and keys are those of llama.cpp's
converter. Vocabularies are taken from models that are there."""
import json
import pathlib
import sys

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors

Names = gguf.MODEL_ARCH
TEXTS = [
    ("the wind from the west", "the wind came from the west, the water was grey"),
    ("the wind from the west", "a village stood on the shore: twelve houses, one street"),
    ("the wind from the west", "the clock did not work"),
    ("What is a line worth?", "It is worth the walk back, said the other"),
    ("What is a line worth?", "the lamp at the end of the pier"),
    ("dog", "a dog and a tin of dry biscuits " * 6),
]
TEMPLATE = "<s>Judge.\n<Query>: {query}\n<Document>: {document}</s>\n"


class Float64:
    """float32 by name means float64 in what library code computes."""

    def __enter__(self):
        self.saved = torch.float32, torch.float, torch.Tensor.float
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double

    def __exit__(self, *_):
        torch.float32, torch.float, torch.Tensor.float = self.saved


def draw(model, seed):
    """Weights of which each one matters."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, t in sorted(model.named_parameters()):
            r = torch.randn(t.shape, generator=rng)
            if "norm" in name.lower() and name.endswith("weight"):
                t.copy_(1 + 0.2 * r)
            elif t.dim() == 1:
                t.copy_(0.25 * r)
            elif "embed" in name:
                t.copy_(0.7 * r)
            else:
                t.copy_(1.3 * r / t.shape[-1] ** 0.5)
    return model.eval()


def copy_vocabulary(writer, source):
    for key, field in gguf.GGUFReader(source).fields.items():
        if not key.startswith("tokenizer."):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub_type=sub)


def tensor_name(arch, n_layers, name):
    for prefix in ("bert.", "roberta."):
        name = name.removeprefix(prefix)
    name = name.replace("pooler.dense", "classifier.dense")
    if name.startswith("classifier.") and name.count(".") == 1:
        name = name.replace("classifier", "classifier.out_proj")
    return gguf.get_tensor_name_map(arch, n_layers).get_name(name, try_suffixes=(".weight", ".bias"))


def write(path, model, arch, source, tensors, keys):
    c = model.config
    w = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    w.add_type(gguf.GGUFType.MODEL)
    w.add_name(path.stem)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(keys.pop("context"))
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    copy_vocabulary(w, source)
    for name, value in keys.items():
        getattr(w, name)(*value if isinstance(value, tuple) else (value,))
    for name, data in tensors.items():
        w.add_tensor(name, np.ascontiguousarray(data.float().numpy()))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def save(folder, name, arch, prompts, score):
    """score(ids, second) is a row; prompts: (ids, where the second text begins, query, document)."""
    rows = np.array([score(ids, second) for ids, second, *_ in prompts])
    about = dict(name=name, arch=arch, kind="rank", logits_std=float(rows[:, 0].std()),
                 layout=dict(rows=rows.shape[0], cols=rows.shape[1]),
                 prompts=[dict(ids=ids, second=second, n_ctx=0, positions=[0],
                               **dict(zip(("query", "document"), texts)))
                          for ids, second, *texts in prompts])
    (folder / f"{name}.json").write_text(json.dumps(about))
    rows.astype("<f4").tofile(folder / f"{name}.logits")
    print(name, rows[:, 0], "deviation", about["logits_std"])


def random_pairs(rng, vocab, n_ctx):
    """Ids, framed or not: a model takes any."""
    for n in (2, 17, n_ctx):
        yield [int(i) for i in rng.integers(8, vocab, n)], n // 2


# ---- encoders ----

SIZES = dict(vocab_size=320, hidden_size=48, num_hidden_layers=2, num_attention_heads=3,
             intermediate_size=96, num_labels=1)


def encoder_scorer(model):
    double = type(model)(model.config).eval()
    double.load_state_dict(model.state_dict())
    double = double.double()

    def score(ids, second):
        x = torch.tensor([ids])
        kinds = torch.zeros_like(x)
        if model.config.type_vocab_size > 1 and second:
            kinds[:, second:] = 1
        with Float64(), torch.no_grad():
            return double(input_ids=x, token_type_ids=kinds,
                          attention_mask=torch.ones_like(x)).logits[0].numpy()

    return score


def make_bert(folder):
    source = folder / "bert.gguf"
    tokens = gguf.GGUFReader(source).fields["tokenizer.ggml.tokens"].contents()
    words = [t if t.startswith("[") else t[1:] if t.startswith("\u2581") else "##" + t for t in tokens]
    tok = tokenizers.Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer()
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    config = transformers.BertConfig(**SIZES, max_position_embeddings=128, type_vocab_size=2,
                                     layer_norm_eps=0.01, pad_token_id=0, attn_implementation="eager")
    model = draw(transformers.BertForSequenceClassification(config), 301)
    tensors = {tensor_name(Names.BERT, 2, k): v for k, v in model.state_dict().items()
               if "position_ids" not in k}
    write(folder / "bert-rank.gguf", model, Names.BERT, source, tensors,
          dict(context=128, add_layer_norm_eps=0.01, add_causal_attention=False,
               add_pooling_type=gguf.PoolingType.RANK, add_classifier_output_labels=(["LABEL_0"],)))
    prompts = list(random_pairs(np.random.default_rng(301), 320, 128))
    for query, document in TEXTS:
        e = tok.encode(query, document)
        prompts.append((e.ids, e.type_ids.index(1), query, document))
    save(folder, "bert-rank", "bert", prompts, encoder_scorer(model))


def make_roberta(folder):
    """As BGE's: the file says nothing of pooling."""
    source = folder / "xlm-roberta.gguf"
    config = transformers.XLMRobertaConfig(**SIZES, max_position_embeddings=130, type_vocab_size=1,
                                           pad_token_id=1, bos_token_id=0, eos_token_id=2,
                                           attn_implementation="eager")
    model = draw(transformers.XLMRobertaForSequenceClassification(config), 302)
    tensors = {}
    for k, v in model.state_dict().items():
        if "position_ids" in k or "token_type_ids" in k:
            continue
        if "position_embeddings" in k:
            v = v[2:]
        tensors[tensor_name(Names.BERT, 2, k)] = v
    write(folder / "xlm-roberta-rank.gguf", model, Names.BERT, source, tensors,
          dict(context=128, add_layer_norm_eps=config.layer_norm_eps, add_causal_attention=False,
               add_add_bos_token=True, add_add_eos_token=True, add_add_sep_token=True,
               add_sep_token_id=2))
    prompts = list(random_pairs(np.random.default_rng(302), 320, 128))
    save(folder, "xlm-roberta-rank", "bert", prompts, encoder_scorer(model))


# ---- a decoder that says yes or no ----


def make_qwen3(folder):
    source = folder / "qwen3-embed.gguf"
    reader = gguf.GGUFReader(source)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    yes, no = 200, 100
    config = transformers.Qwen3Config(vocab_size=320, hidden_size=48, intermediate_size=64,
                                      num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, head_dim=16,
                                      max_position_embeddings=256, tie_word_embeddings=True,
                                      attn_implementation="eager")
    model = draw(transformers.Qwen3ForCausalLM(config), 303)
    state = {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}
    head = state["model.embed_tokens.weight"]
    head[yes] *= 0.3
    head[no] *= 0.3
    tensors = {tensor_name(Names.QWEN3, 2, k): v for k, v in state.items()}
    tensors["cls.output.weight"] = torch.stack([head[yes], head[no]])
    write(folder / "qwen3-rank.gguf", model, Names.QWEN3, source, tensors,
          dict(context=256, add_head_count_kv=2, add_key_length=16, add_value_length=16,
               add_layer_norm_rms_eps=config.rms_norm_eps, add_rope_freq_base=10000.0,
               add_pooling_type=gguf.PoolingType.RANK,
               add_classifier_output_labels=(["yes", "no"],),
               add_chat_template=([{"name": "rerank", "template": TEMPLATE}],)))
    with Float64():
        double = transformers.Qwen3ForCausalLM(config).eval()
    double.load_state_dict(model.state_dict())
    double = double.double()

    def score(ids, _):
        with Float64(), torch.no_grad():
            logits = double(input_ids=torch.tensor([ids])).logits[0, -1]
            return torch.softmax(logits[[yes, no]], 0).numpy()

    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    tok = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tok.normalizer = normalizers.NFC()
    # of Qwen2, from its tokenizer.json
    words = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(words), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.add_special_tokens(["<unk>", "<s>", "</s>"])
    prompts = [(ids, 0) for ids, _ in random_pairs(np.random.default_rng(303), 320, 200)]
    for query, document in TEXTS:
        text = TEMPLATE.replace("{query}", query).replace("{document}", document)
        prompts.append((tok.encode(text).ids, 0, query, document))
    save(folder, "qwen3-rank", "qwen3", prompts, score)


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    make_bert(out)
    make_roberta(out)
    make_qwen3(out)
