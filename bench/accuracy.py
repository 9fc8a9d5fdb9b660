#!/usr/bin/env python3
"""Measures what a quantised file's arithmetic costs: the mean KL divergence of its predictions from those
that the same weights give in float32, for incipit and for llama.cpp.

    accuracy.py --incipit build/src/cli/incipit --peer DIR/bin [--text FILE] MODEL.gguf...

Each file is requantised to F32 by the peer's llama-quantize; incipit computes the base from it, with
KV of f32, in the format of llama-perplexity --kl-divergence-base. Standard library only."""
import argparse, json, pathlib, re, subprocess, sys, tempfile


def run(*args):
    p = subprocess.run([str(a) for a in args], capture_output=True, text=True, errors="replace")
    if p.returncode:
        sys.exit(f"{args[0]}: {p.stderr[-500:]}")
    return p.stdout + p.stderr


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", metavar="MODEL", type=pathlib.Path)
    p.add_argument("--incipit", default="build/src/cli/incipit")
    p.add_argument("--peer", required=True, help="folder with llama-quantize and llama-perplexity")
    p.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    p.add_argument("--save", help="a name: the figures go to bench/results/NAME.json")
    a = p.parse_args()
    rows = []
    print(f"{'model':34}{'incipit':>10}{'q8_0 KV':>10}{'llama.cpp':>11}")
    for model in a.models:
        with tempfile.TemporaryDirectory() as folder:
            whole, base = pathlib.Path(folder, "f32.gguf"), pathlib.Path(folder, "base")
            run(a.peer + "/llama-quantize", "--allow-requantize", model, whole, "F32")
            run(a.incipit, "perplexity", "-m", whole, "--kv", "f32", "-f", a.text, "--save-base", base)
            ours = [float(re.search(r"mean KL (\S+)", run(a.incipit, "perplexity", "-m", model, "--kv", kv, "--kl", base))[1])
                    for kv in ("f16", "q8_0")]
            said = run(a.peer + "/llama-perplexity", "-m", model, "--kl-divergence", "--kl-divergence-base", base)
            theirs = float(re.search(r"Mean\s+KLD:\s+(\S+)", said)[1])
        print(f"{model.name[-33:]:34}{ours[0]:10.5f}{ours[1]:10.5f}{theirs:11.5f}", flush=True)
        rows.append({"model": model.name, "incipit": ours[0], "incipit_q8_0": ours[1], "peer": theirs})
    if a.save:
        (pathlib.Path(__file__).parent / "results" / f"{a.save}.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
