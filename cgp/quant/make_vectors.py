#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes vectors.txt and iq_grids.h from the reference dequantisers in NumPy (pip install gguf) and, for the K formats, from the
encoders of GGML (the first argument: a shared library with quantize_row_q4_K_ref and its like).

vectors.txt, one record a line, bytes and f32 bits in hexadecimal, little endian:
  decode FORMAT BLOCKS VALUES   four blocks; the values of the first
  crc FORMAT CRC                CRC-32 of the values of all four
  encode FORMAT VALUES BLOCKS   for formats that the reference encodes
  rmse FORMAT VALUES NUMBER     root of the mean squared error of GGML's encoder
"""
import ctypes
import pathlib
import sys
import zlib

import gguf.quants as q
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T

HERE = pathlib.Path(__file__).parent
# Offsets of binary16 scales, which random bytes must not make NaN.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "TQ1_0": [52], "TQ2_0": [64], "IQ2_XXS": [0], "IQ2_XS": [0],
          "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "IQ1_M": [],
          "MXFP4": [], "NVFP4": []}
ENCODED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4", "TQ1_0", "TQ2_0"]


def random_blocks(name, rng, count=4):
    elements, size = GGML_QUANT_SIZES[T[name]]
    b = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in SCALES[name]:
        d = rng.uniform(-0.5, 0.5, count).astype(np.float16)
        b[:, at:at + 2] = d.view(np.uint8).reshape(count, 2)
    if name == "MXFP4":
        b[:, 0] = [0, 1, 127, 254]  # subnormal scales too
    if name == "NVFP4":
        b[:, :4] = rng.integers(0, 0x7F, (count, 4))
    if name == "IQ1_M":  # the scale's exponent: below that of infinity
        b[:, 55] = b[:, 55] & 0x0F | 0x20
    return b


def distributions(rng, n=512):
    """Values as weights have them, with outliers, of one sign, of many sizes, mostly zero."""
    each = (rng.standard_normal(n), rng.standard_t(3, n), rng.random(n), rng.standard_normal(n) * np.exp(rng.standard_normal(n // 32)).repeat(32),
            rng.standard_normal(n) * (rng.random(n) < 0.1))
    return [np.float32(x * 0.05) for x in each]


def ggml_blocks(name, values, library):
    blocks = np.zeros((values.size // 256, GGML_QUANT_SIZES[T[name]][1]), np.uint8)
    getattr(library, f"quantize_row_{name[0].lower()}{name[1:]}_ref")(values.ctypes.data_as(ctypes.c_void_p),
                                                                  blocks.ctypes.data_as(ctypes.c_void_p),
                                                                  ctypes.c_int64(values.size))
    return blocks


def main():
    rng = np.random.default_rng(20261123)
    lines = []
    for name in SCALES:
        blocks = random_blocks(name, rng)
        values = q.dequantize(blocks, T[name]).astype(np.float32).reshape(4, -1)
        lines.append(f"decode {name.lower()} {blocks.tobytes().hex()} {values[0].tobytes().hex()}")
        lines.append(f"crc {name.lower()} {zlib.crc32(values.tobytes()):08x}")
    for name in ENCODED:
        elements = GGML_QUANT_SIZES[T[name]][0]
        values = rng.standard_normal((2, elements)).astype(np.float32)
        values[1, :] *= np.float32(0.01)
        if elements == 32:
            values = np.concatenate([values, np.zeros((1, elements), np.float32)])
        blocks = q.quantize(values, T[name])
        lines.append(f"encode {name.lower()} {values.tobytes().hex()} {blocks.tobytes().hex()}")
    for values in distributions(np.random.default_rng(20261124)):
        for name in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"):
            blocks = ggml_blocks(name, values, ctypes.CDLL(sys.argv[1]))
            error = q.dequantize(blocks, T[name]).astype(np.float64).reshape(-1) - values
            lines.append(f"rmse {name.lower()} {values.tobytes().hex()} {np.sqrt((error ** 2).mean()):.9g}")
    (HERE / "vectors.txt").write_text("\n".join(lines) + "\n")

    out = ["// SPDX-License-Identifier: Apache-2.0", "#pragma once",
           "// Codebooks of the IQ formats, as GGUF defines them, packed to 2, 3 or 4 bits a value: made by make_vectors.py.",
           "#include <cstdint>", "", "namespace cgp::quant {", "", "// clang-format off"]
    signs = np.frombuffer(q.IQ2_XXS.ksigns, dtype=np.uint8)
    tables = [("kSigns", signs)]
    for name in ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"]:
        tables.append(("k" + name.title().replace("_", "") + "Grid", np.frombuffer(bytes.fromhex(getattr(q, name).grid_hex.decode()), np.uint8)))
    for name, data in tables:
        out.append(f"inline constexpr std::uint8_t {name}[{len(data)}] = {{")
        for i in range(0, len(data), 28):
            out.append("    " + ",".join(str(v) for v in data[i:i + 28]) + ",")
        out.append("};")
    out += ["// clang-format on", "", "}  // namespace cgp::quant", ""]
    (HERE / "iq_grids.h").write_text("\n".join(out))


if __name__ == "__main__":
    main()
