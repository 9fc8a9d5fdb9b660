# /// script
# dependencies = ["lm-eval[api]==0.4.13"]
# ///
"""lm-eval, local-completions: loglikelihood by echo and logprobs, and generate_until, over a task
of four questions."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from check import QUIET, URL, check

CHOICES = """task: rivers
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_target: answer
doc_to_choice: choices
metric_list: [{{metric: acc}}]
"""
WORDS = """task: words
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{choices[answer]}}}}"
generation_kwargs: {{until: ["."], max_gen_toks: 8}}
metric_list: [{{metric: exact_match}}]
"""
QUESTIONS = [
    ("The capital of France is", [" Paris", " xylophone"], 0),
    ("Two plus two is", [" banana", " four"], 1),
    ("The sun is a", [" star", " spoon"], 0),
    ("Fish live in", [" elbow", " water"], 1),
]


def evaluate(task, text, kind, **model):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        rows = [json.dumps({"question": q, "choices": c, "answer": a}) for q, c, a in QUESTIONS]
        (folder / "rivers.jsonl").write_text("\n".join(rows))
        (folder / "task.yaml").write_text(text.format(data=folder / "rivers.jsonl"))
        args = {"model": "local", "base_url": URL + kind, "num_concurrent": 2, "max_retries": 1} | model
        command = [sys.executable, "-m", "lm_eval", "--tasks", task, "--include_path", folder]
        command += ["--output_path", folder / "out"]
        command += ["--model", "local-completions", "--model_args", ",".join(f"{k}={v}" for k, v in args.items())]
        home = {"HOME": str(folder), "HF_DATASETS_CACHE": str(folder / "hf"), "OPENAI_API_KEY": "any"}
        path = {k: os.environ[k] for k in ("PATH",)}
        subprocess.run(command, check=True, env=path | QUIET | home, timeout=300)
        [result] = (folder / "out").rglob("results_*.json")
        return json.loads(result.read_text())["results"][task]


@check("loglikelihood: four questions whose answers the model knows")
def _():
    got = evaluate("rivers", CHOICES, "/v1/completions")
    assert got["acc,none"] == 1.0, got


@check("generate_until")
def _():
    assert "exact_match,none" in evaluate("words", WORDS, "/v1/completions", tokenizer_backend="None")
