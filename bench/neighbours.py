#!/usr/bin/env python3
"""Measures what is left of the speed when other processes want the processors, too.

    neighbours.py --incipit build/src/cli/incipit [--peer DIR/bin] [--spinning 1,2] [--rounds 5] MODEL.gguf

A neighbour is a process that spins. Each round runs every case in turn; a figure is the median of
its share of the quiet one of the same round. On two processors a fair share of them is 75 % beside
one neighbour and 50 % beside two.
Standard library only."""
import argparse, pathlib, statistics, subprocess, sys

import compare


class Neighbours:
    def __init__(self, n):
        self.n = n

    def __enter__(self):
        self.all = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(self.n)]

    def __exit__(self, *_):
        for p in self.all:
            p.kill()
            p.wait()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", metavar="MODEL")
    p.add_argument("--incipit", default="build/src/cli/incipit")
    p.add_argument("--peer", help="folder with llama-bench (see build_peer.sh)")
    p.add_argument("--spinning", default="1,2", help="numbers of neighbours, beside none")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--save", help="a name: the figures go to bench/results/NAME.json")
    a = p.parse_args()
    a.depth, a.batch, a.kv, a.isa = 0, None, "f16", None
    sides = [compare.ours] + ([compare.theirs] if a.peer else [])
    cases = [0] + [int(n) for n in a.spinning.split(",")]
    shares = {}
    print(f"{compare.cpu()}; {a.threads} threads, {a.rounds} rounds, {pathlib.Path(a.model).name}")
    for _ in range(a.rounds):
        for side in sides:
            quiet = None
            for n in cases:
                with Neighbours(n):
                    found = side(a, a.model)
                quiet = quiet or found
                for what in ("prefill", "decode") if n else ():
                    shares.setdefault((side.__name__, n, what), []).append(found[what] / quiet[what])
    for (side, n, what), values in shares.items():
        print(f"{'incipit' if side == 'ours' else 'llama.cpp':10}{n} spinning  {what:9}"
              f"{100 * statistics.median(values):5.0f} %   ({100 * min(values):.0f} to {100 * max(values):.0f})")
    if a.save:
        compare.save(a, {"neighbours": [{"side": s, "spinning": n, "what": w, "shares": v}
                                        for (s, n, w), v in shares.items()]})


if __name__ == "__main__":
    main()
