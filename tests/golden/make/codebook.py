"""Writes src/kern/codebook_grids.h from the tables of the `gguf` package (ggml's own).
Run from the root: python3 tests/golden/make/codebook.py"""

import numpy as np
from gguf import quants

HEAD = """/* The grids of the IQ types, which are part of the format (ggml, ggml-common.h): an entry is eight
 * indices of 2 bits or four of 3 bits into the magnitudes of its type, the first lowest. Written by
 * tests/golden/make/codebook.py. */
#ifndef CODEBOOK_GRIDS_H
#define CODEBOOK_GRIDS_H

#include <stdint.h>

/* clang-format off */
"""


def entries(kind):
    kind.init_grid()
    values = list(kind.grid_map)
    bits = 2 if len(values) == 3 else 3
    for row in kind.grid.reshape(kind.grid_shape):
        yield sum(values.index(int(x)) << bits * i for i, x in enumerate(row))


with open("src/kern/codebook_grids.h", "w") as out:
    out.write(HEAD)
    for name in ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"):
        codes = [f"0x{x:04x}" for x in entries(getattr(quants, name))]
        out.write(f"\nstatic const uint16_t grid_{name.lower()}[{len(codes)}] = {{\n")
        for i in range(0, len(codes), 12):
            out.write("    " + ", ".join(codes[i : i + 12]) + ",\n")
        out.write("};\n")
    out.write("/* clang-format on */\n\n#endif\n")
