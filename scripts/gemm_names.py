# SPDX-License-Identifier: Apache-2.0
"""Names of gemm's variants in result files of before configs had names (cgp/kernels/gemm/select/gemm_config.h),
as the configs are named now. Other names stay as they are."""

import re

FAMILIES = {"single": "non_persistent", "persistent": "persistent", "tail_split": "stream_k", "stream": "small_m",
            "split": "cluster_split_k", "pingpong": "pingpong", "shared": "cooperative", "promoted": "promoted"}
NAME = re.compile(r"gemm_(?P<types>[a-z0-9]+(?:_[a-z]+[0-9m]+)*)_(?P<family>single|persistent|tail_split|stream|split|pingpong|"
                  r"shared|promoted)(?P<blocks>_blocks)?_sm90_(?P<layout>[nt]{2})__(?P<choices>.*?)"
                  r"(?:__(?P<epilogue>.*))?")
SKINNY = re.compile(r"gemm_(\w+)_skinny_nt__(\d+)x(\d+)_w(\d+)_u(\d+)(_r\d+)?(_first)?")
PLAIN = re.compile(r"gemm_([a-z0-9]+)_(simt|sm90|sm80)_([nt]{2})(?:__(.*))?")


def types_of(text, family):
    words = text.split("_")
    if words == ["e4m3"] and family in ("single", "persistent"):
        words.append("bf16")
    a, c = words[0], words[-1]
    b = words[1] if len(words) == 3 else a
    return a if a == b == c else f"{a}_{b}_{c}"


def current(name):
    """'gemm_bf16_single_sm90_nt__64x64x64_s8_c1_turned' -> 'gemm_bf16_nt_sm90_non_persistent_64x64x64_s8_cluster1x1_swap_ab'"""
    if m := SKINNY.fullmatch(name):
        t, n, rows, warps, unroll, blocks, first = m.groups()
        return (f"gemm_{t}_nt_skinny_{rows}x{n}_warps{warps}_unroll{unroll}"
                + (f"_min_blocks{blocks[2:]}" if blocks else "") + ("_b_evict_first" if first else ""))
    if m := PLAIN.fullmatch(name):
        t, family, layout, tile = m.groups()
        return f"gemm_{t}_{layout}_{family}" + (f"_{tile}" if tile else "")
    m = NAME.fullmatch(name)
    if not m:
        return name
    family, layout = m["family"], m["layout"]
    tile, *choices = m["choices"].split("_")
    number = {c[0]: c[1:] for c in choices if re.fullmatch(r"[a-z]\d+[xo]?\d*", c)}
    size = tile.split("x")
    if family == "stream":
        size = [size[1], size[0], size[2]]
    elif len(size) == 2:  # stages of 128 bytes
        size.append({"e": "128", "s": "128", "f32": "32"}.get(m["types"][:3] if m["types"].startswith("f32")
                                                              else m["types"][0], "64"))
    elif m["types"].startswith("e4m3"):
        size[2] = "128"
    out = [f"gemm_{types_of(m['types'], family)}_{layout}_sm90_{FAMILIES[family]}", "x".join(size), "s" + number["s"]]
    if "beside" in choices or "below" in choices:
        out.append("cluster1x2" if "beside" in choices else "cluster2x1")
    if "c" in number:
        out.append("cluster" + (number["c"] if "x" in number["c"] else number["c"] + "x1"))
    if "k" in number:
        out.append("split_k" + number["k"])
    if "grid" in choices:
        out.append("raster_grid")
    elif family == "split":
        out.append("group8")
    if "g" in number:
        out.append("group" + number["g"])
    if "b" in number:
        out.append("stores" + number["b"])
    if "r" in number:
        out.append("min_blocks" + number["r"])
    if family == "promoted":
        out.append("promote" + number.get("p", "1").rstrip("o"))
        out += ["overlap"] * number.get("p", "").endswith("o")
    out += ["block_scales"] * bool(m["blocks"])
    if family == "tail_split":
        policies = {"f": "first", "l": "last"}
        out += [f"{x}_evict_{policies[y]}" for x, y in zip("abc", choices[-1]) if y in policies]
    out += ["b_evict_first"] * ("first" in choices)
    out += ["swap_ab"] * ("turned" in choices)
    out += ["source_c"] * ("old" in choices)
    out += [f"epilogue_{m['epilogue']}"] * bool(m["epilogue"])
    return "_".join(out)
