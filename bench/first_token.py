#!/usr/bin/env python3
"""Seconds from the start of the process to the first bytes of its answer, the file being in the
system's cache; of several builds, in turns.

    first_token.py [--runs 20] build/src/cli/incipit [OTHER…] [OPTIONS of incipit run]"""

import argparse
import os
import statistics
import subprocess
import time


def start(program, options):
    began = time.monotonic()
    command = [program, "run", "-n", "1", *options, "Why is the sky blue?"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as p:
        os.read(p.stdout.fileno(), 1)
        return time.monotonic() - began


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runs", type=int, default=20)
    p.add_argument("programs", nargs="+")
    a, options = p.parse_known_args()
    times = {program: [] for program in a.programs}
    for program in a.programs:
        start(program, options)  # fills the system's cache
    for _ in range(a.runs):
        for program, seconds in times.items():
            seconds.append(start(program, options))
    for program, seconds in times.items():
        seconds.sort()
        print(f"{program}: median {statistics.median(seconds):.3f} s, {seconds[0]:.3f} to {seconds[-1]:.3f}")


if __name__ == "__main__":
    main()
