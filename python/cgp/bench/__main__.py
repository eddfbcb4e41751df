# SPDX-License-Identifier: Apache-2.0
import argparse
import datetime
import os
import sys

PARTS = ("operators", "optimizers", "adapters", "generate", "train")


def arguments(given):
    parser = argparse.ArgumentParser(prog="python -m cgp.bench", description=sys.modules["cgp.bench"].__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all when none is named")
    parser.add_argument("--models", default="gpt2,llama1b", help="of gpt2 (124M) and llama1b, separated by commas")
    parser.add_argument("--layers", type=int, default=0, help="layers of the models (0: all; train: 8 of llama1b)")
    parser.add_argument("--prompts", default="32,128,512", help="lengths of prompts")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--only", default="", help="operators whose names contain one of these, separated by commas")
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each contender, at most")
    parser.add_argument("--seconds", type=float, default=5.0, help="time for a row; three rounds are made in any case")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave out what is compiled here: torch.compile, Triton")
    parser.add_argument("--no-curve", dest="curve", action="store_false", help="leave the 200 steps of training out")
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--svg", metavar="FOLDER", help="write one plot for each part there")
    options = parser.parse_args(given)
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; there are {', '.join(PARTS)}")
    options.parts = options.parts or list(PARTS)
    options.models = [m for m in options.models.split(",") if m]
    options.only = [o.strip() for o in options.only.split(",") if o.strip()]
    from ._shapes import MODELS
    for model in options.models:
        if model not in MODELS:
            parser.error(f"there is no model {model!r}; there are {', '.join(MODELS)}")
    try:
        options.prompts = [int(p) for p in options.prompts.split(",")]
    except ValueError:
        parser.error(f"--prompts: {options.prompts!r} is no list of numbers")
    for name in ("rounds", "new_tokens"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if min(options.prompts) < 1:
        parser.error("--prompts must be at least 1")
    return options


def why_not(parts):
    """Why these parts cannot be measured here; empty: they can."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed: it is what is compared with"
    if not torch.cuda.is_available():
        return "there is no GPU (torch.cuda.is_available() says no): times of the emulator would say nothing"
    if set(parts) & {"generate", "train"}:
        try:
            import transformers  # noqa: F401
        except ImportError:
            return "transformers is not installed: the parts generate and train take their models from it"
    return ""


def missing(peers=("triton", "liger_kernel", "quack")):
    """What is said of peers that are not installed; empty: all are."""
    from importlib.util import find_spec
    names = [p for p in peers if find_spec(p) is None]
    return f"not installed, so left out: {', '.join(names)}" if names else ""


def main(given=None):
    options = arguments(given)
    why = why_not(options.parts)
    if why:
        print(f"cgp.bench: {why}", file=sys.stderr)
        return 2
    import importlib

    import torch

    import cgp

    from . import _report
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cgp": cgp.__version__,
             "date": datetime.date.today().isoformat()}
    print(", ".join(f"{k} {v}" for k, v in about.items()), flush=True)
    if "operators" in options.parts and missing():
        print(missing(), flush=True)
    rows = []
    for part in options.parts:
        made = importlib.import_module("." + part, "cgp.bench").run(options)
        print(_report.table(made), flush=True)
        rows += made
        if options.json:  # after every part: what was measured is not lost
            with open(options.json, "w") as f:
                f.write(_report.as_json(rows, about) + "\n")
        if options.svg:
            os.makedirs(options.svg, exist_ok=True)
            with open(os.path.join(options.svg, f"{part}.svg"), "w") as f:
                f.write(_report.svg(made, f"cgp.bench {part}: {about['device']}, PyTorch {about['torch']}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
