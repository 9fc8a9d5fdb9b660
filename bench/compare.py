#!/usr/bin/env python3
"""Compares `incipit bench` with llama-bench and llama-batched-bench on the same files, in alternating runs.

    compare.py --incipit build/src/cli/incipit --peer DIR/bin [--pairs 5] MODEL.gguf...

Each pair runs both once, in turn, so that a noisy machine hits both alike. Prints the median of each
and of the ratios pair by pair, and how much of the memory's measured bandwidth our decoding reads with;
--save adds the figures to bench/results/. Standard library only."""
import argparse, datetime, json, os, pathlib, platform, statistics, subprocess, sys


def cpu():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
    flags = open("/proc/cpuinfo").read()
    best = next((f for f in ("amx_int8", "avx512_vnni", "avx_vnni", "avx512f", "avx2") if f in flags), "")
    return f"{name}, {os.cpu_count()} CPUs, {best}"


def ours(a, model):
    args = [a.incipit, "bench", "-m", model, "-p", str(a.prompt), "-n", str(a.tokens), "-d", str(a.depth),
            "-t", str(a.threads), "-b", f"1,{a.batch}" if a.batch else "1", "-r", "1", "--json", "--kv", a.kv]
    if a.isa:
        args += ["--isa", a.isa]
    r = json.loads(subprocess.run(args, check=True, capture_output=True, text=True).stdout)["results"]
    found = {"prefill": r[0]["prefill"], "decode": r[0]["decode"]} | ({"batch": r[1]["decode"]} if a.batch else {})
    return found | {"read": r[0]["decode_read"]}


def theirs(a, model):
    args = [a.peer + "/llama-bench", "-m", model, "-p", str(a.prompt), "-n", str(a.tokens), "-d", str(a.depth),
            "-t", str(a.threads), "-r", "1", "-o", "json", "-ctk", a.kv, "-ctv", a.kv]
    if a.kv != "f16":
        args += ["-fa", "1"]
    out = json.loads(subprocess.run(args, check=True, capture_output=True, text=True).stdout)
    found = {"prefill" if r["n_prompt"] else "decode": r["avg_ts"] for r in out}
    if a.batch:
        args = [a.peer + "/llama-batched-bench", "-m", model, "-npp", "64", "-ntg", str(a.tokens), "-npl", str(a.batch),
                "-c", str(a.batch * (64 + a.tokens)), "-t", str(a.threads), "-ctk", a.kv, "-ctv", a.kv,
                "--output-format", "jsonl"]
        both = subprocess.run(args, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        found["batch"] = next(json.loads(l)["speed_tg"] for l in both.splitlines() if l.startswith('{"n_kv_max"'))
    return found


def save(a, figures):
    folder = pathlib.Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    version = subprocess.run([a.incipit, "--version"], capture_output=True, text=True).stdout.strip()
    head = {"date": datetime.date.today().isoformat(), "cpu": cpu(), "kernel": platform.release(), "version": version,
            "peer": "llama.cpp of llama-cpp-python 0.3.36" if a.peer else None,
            "options": {k: v for k, v in vars(a).items()
                        if k in ("pairs", "rounds", "prompt", "tokens", "depth", "batch", "threads", "kv", "isa")}}
    (folder / f"{a.save}.json").write_text(json.dumps(head | figures, indent=1) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", metavar="MODEL")
    p.add_argument("--incipit", default="build/src/cli/incipit")
    p.add_argument("--peer", required=True, help="folder with llama-bench (see build_peer.sh)")
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--depth", type=int, default=0)
    p.add_argument("--batch", type=int, help="decode so many sequences at once, too")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--kv", default="f16")
    p.add_argument("--isa", help="force it in incipit (the peer must be built to match)")
    p.add_argument("--save", help="a name: the figures go to bench/results/NAME.json")
    a = p.parse_args()
    print(f"{cpu()}; {a.threads} threads, {a.pairs} pairs, depth {a.depth}, KV {a.kv}")
    print(f"{'model':34}{'':9}{'incipit':>10}{'llama.cpp':>11}{'ratio':>8}   (range of ratios)")
    rows = []
    for model in a.models:
        pairs = []
        for i in range(a.pairs):
            both = {}
            for side in ((ours, theirs) if i % 2 == 0 else (theirs, ours)):
                both[side.__name__] = side(a, model)
            pairs.append(both)
        read = [q["ours"].pop("read") for q in pairs]
        for what in pairs[0]["ours"]:
            x, y = [q["ours"][what] for q in pairs], [q["theirs"][what] for q in pairs]
            r = [u / v for u, v in zip(x, y)]
            name = pathlib.Path(model).name[-33:]
            share = f", {100 * statistics.median(read):.0f} % of the bandwidth" if what == "decode" else ""
            print(f"{name:34}{what:9}{statistics.median(x):10.1f}{statistics.median(y):11.1f}"
                  f"{statistics.median(r):8.2f}   ({min(r):.2f} to {max(r):.2f}){share}", flush=True)
            rows.append({"model": name, "what": what, "incipit": x, "peer": y, "ratio": statistics.median(r)}
                        | ({"read": read} if share else {}))
    if a.save:
        save(a, {"rows": rows})


if __name__ == "__main__":
    main()
