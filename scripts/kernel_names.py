# SPDX-License-Identifier: Apache-2.0
"""Names of variants of attention, rows and transpose in result files of before configs had names, as the configs are named
now. Names that do not tell all fields of a config, and names of kernels that are gone, stay as they are."""
import re

ROW = re.compile(r"(?P<op>argmax|cross_entropy|(?:layer|rms)_norm(?:_residual|_backward)?|(?:log_)?softmax(?:_backward)?)_"
                 r"(?P<types>(?:bf16|f16|f32)(?:_(?:bf16|f16|f32))*)__(?P<shape>\d+x\d+)_l(?P<loads>\d+)_c(?P<cluster>\d+)_"
                 r"e(?P<vec>\d+)(?:_s(?P<stages>\d+))?_r(?P<min_blocks>\d+)(?P<flags>(?:_(?:stay|hold|pass|lag|ahead|edges))*)"
                 r"(?:_(?P<operands>[a-z]+))?")
# In the order of RowConfig (cgp/kernels/row/row_kernel.h).
ROW_FLAGS = {"stay": "persistent", "hold": "hold_columns", "pass": "one_pass", "lag": "overlap_exchange", "ahead": "prefetch",
             "edges": "edges"}
# What follows the row's config, in the order of each operation's config.
OPERANDS = {
    "norm": {"w": "weight", "b": "bias", "m": "mean", "r": "rstd"},
    "norm_backward": {"w": "weight", "d": "dweight", "b": "dbias"},
    "argmax": {"w": "index_s64", "v": "values"},
    "cross_entropy": {"w": "targets_s64", "l": "loss", "g": "gradient"},
}
TRANSPOSE = re.compile(r"transpose_(b\d+)_(vector|sectors)__(\d+x\d+)(?:_s(\d+))?(?:_r(\d+))?")
FORWARD = re.compile(r"attention_(bf16|f16|e4m3_bf16)_sm90_(\d+)_(\d+)__(\d+x\d+)_s(\d+)(?:_q(\d+))?(?:_(t{1,2}))?(_p)?(_z)?(_right)?")
BACKWARD = re.compile(r"attention_backward_(bf16|f16)_sm90(_right)?__(\d+)_s(\d+)(_b1)?(?:_(turns|first))?(_p)?")
BACKWARD_WIDE = re.compile(r"attention_backward_(bf16|f16)_sm90_(d_k)(_right)?__(\d+)_(\d+)(_p)?")


def row(m):
    op, types = m["op"], m["types"].split("_")
    if len(set(types)) > 1:
        return m[0]
    kind = "norm_backward" if op.endswith("norm_backward") else "norm" if "norm" in op else op
    given = m["operands"] or ""
    names = OPERANDS.get(kind, {})
    sums = kind == "norm" and op.endswith("_residual")
    if set(given) - set(names) - set("s" if sums else ""):
        return m[0]
    out = [op.removesuffix("_residual"), types[0]]
    if sums:
        out += ["residual"] + ["sum"] * ("s" in given)
    out.append(m["shape"])
    for name, value, default in (("vec", m["vec"], "1"), ("loads", m["loads"], "1"), ("cluster", m["cluster"], "1"),
                                 ("stages", m["stages"] or "0", "0"), ("min_blocks", m["min_blocks"], "0")):
        out += [name + value] * (value != default)
    flags = m["flags"].split("_")
    out += [new for old, new in ROW_FLAGS.items() if old in flags]
    return "_".join(out + [new for old, new in names.items() if old in given])


def current(name):
    """'layer_norm_bf16__256x1_l8_c4_e8_s3_r2_hold_lag_wb' ->
    'layer_norm_bf16_256x1_vec8_loads8_cluster4_stages3_min_blocks2_hold_columns_overlap_exchange_weight_bias'"""
    if m := ROW.fullmatch(name):
        return row(m)
    if m := TRANSPOSE.fullmatch(name):
        bits, access, tile, strip, blocks = m.groups()
        return (f"transpose_{bits}_{access.rstrip('s')}_{tile}" + (f"_strip{strip}" if strip else "")
                + (f"_min_blocks{blocks}" if blocks else ""))
    if m := FORWARD.fullmatch(name):
        types, d_qk, d_v, tile, stages, q_tiles, turns, persistent, lazy, right = m.groups()
        return (f"attention_{types.split('_')[0]}_sm90_d{d_qk}x{d_v}_tile{tile}_s{stages}" + (f"_q_tiles{q_tiles}" if q_tiles else "")
                + {"t": "_pingpong", "tt": "_pingpong_scores"}.get(turns, "") + "_persistent" * bool(persistent)
                + "_lazy_rescale" * bool(lazy) + "_window_right" * bool(right))
    if m := BACKWARD.fullmatch(name):
        t, right, d, stages, one, order, persistent = m.groups()
        return (f"attention_backward_{t}_sm90_gradients_d{d}x{d}_s{stages}" + "_partial1" * bool(one)
                + {"turns": "_ordered", "first": "_first_stores"}.get(order, "_any_order") + "_persistent" * bool(persistent)
                + "_window_right" * bool(right))
    if m := BACKWARD_WIDE.fullmatch(name):
        t, step, right, d_qk, d_v, persistent = m.groups()
        return (f"attention_backward_{t}_sm90_{step}_d{d_qk}x{d_v}" + "_persistent" * bool(persistent)
                + "_window_right" * bool(right))
    return {"cumsum_bf16_v__256": "cumsum_bf16_vec8_block_a_row", "cumsum_bf16_v__32x4": "cumsum_bf16_vec8",
            "embedding_16b_s64": "embedding_bytes16_index_s64", "embedding_backward_bf16_v": "embedding_backward_bf16_vec8"
            }.get(name, name)
