#!/usr/bin/env python3
"""Turns two public traces into `incipit sim`'s format: those of docs/cache.md that its policies were not
made with. Neither is kept here.

  git clone https://github.com/LMCache/LMBench             (2025; a service, 24 hours)
  bench/traces.py gmi LMBench/3-workloads/trace-replayer/traces/gmi_trace.jsonl > gmi.jsonl

  git clone https://github.com/callanjfox/kv-cache-tester  (Apache-2.0; sessions of Claude Code)
  bench/traces.py sessions kv-cache-tester/traces > sessions.jsonl

The sessions have no dates and share no ids. Of the files of less than 4 MiB every eighth in the order of names is
taken; the first requests of two are 120 seconds apart on average (exponential, seed 1), and eight blocks of 64
tokens make one of 512. All of this was chosen before any policy had seen them. Sub-agents are left out.
"""

import json
import random
import sys
from pathlib import Path

EVERY, GAP, SEED, JOIN, MOST = 8, 120.0, 1, 8, 4 << 20
FIRST = 1_000_000  # id; below: numbers of sessions


def chained(blocks, ids, at=0, join=1):
    """An id for each prefix: of whole groups of `join` blocks, after what `at` stands for."""
    chain = []
    for i in range(0, len(blocks) - join + 1, join):
        at = ids.setdefault((at, *blocks[i : i + join]), len(ids) + FIRST)
        chain.append(at)
    return chain


def read_gmi(path):
    ids = {}
    for line in open(path):
        r = json.loads(line)
        r["timestamp"] = int(r["timestamp"]) // 1_000_000
        r["hash_ids"] = chained(r["hash_ids"], ids)
        yield r


def read_sessions(folder):
    draw, start, ids = random.Random(SEED), 0.0, {}
    paths = sorted(p for p in Path(folder).glob("trace_*.json") if p.stat().st_size < MOST)
    for number, path in enumerate(paths[::EVERY]):
        session = json.loads(path.read_text())
        for r in session["requests"]:
            chain = chained(r.get("hash_ids") or [], ids, number, JOIN)
            if chain:
                yield {
                    "timestamp": int((start + r["t"]) * 1000),
                    "input_length": r["in"],
                    "output_length": r["out"],
                    "block": JOIN * session["block_size"],
                    "hash_ids": chain,
                }
        start += draw.expovariate(1 / GAP)


def main():
    readers = {"gmi": read_gmi, "sessions": read_sessions}
    if len(sys.argv) != 3 or sys.argv[1] not in readers:
        sys.exit(__doc__)
    for request in readers[sys.argv[1]](sys.argv[2]):
        print(json.dumps(request))


if __name__ == "__main__":
    main()
