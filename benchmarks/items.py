"""What is measured: each item gives rows of a case, its seconds, and its ratio to something else of the same run."""

import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

from headspaces.spaces import Shape

ROOT = Path(__file__).resolve().parents[1]

GPT2 = Shape(n_layers=12, d_model=768, n_query_heads=12, n_kv_heads=12, d_head=64)
SMOLLM2 = Shape(n_layers=30, d_model=576, n_query_heads=9, n_kv_heads=3, d_head=64)
QWEN25 = Shape(n_layers=28, d_model=3584, n_query_heads=28, n_kv_heads=4, d_head=128)
QWEN3_LAYER = Shape(n_layers=1, d_model=4096, n_query_heads=64, n_kv_heads=4, d_head=128)

EINSUM_BYTES = 2**26
"""Bytes of one tile of TransformerLens' einsum."""

CHECKPOINT = "HEADSPACES_BENCHMARK_CHECKPOINT"
"""Environment variable that hands a folder of weights to the item of affinities."""

LENS_TOLERANCE = 1e-5
"""Largest difference from TransformerLens' values."""


def seconds_of(call, repeats=3):
    """Shortest time of a few calls."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def product_rate(dtype, size=2048):
    """Floating-point operations per second of a square matrix product on all threads of this process."""
    import numpy as np

    left = np.random.default_rng(0).standard_normal((size, size)).astype(dtype)
    right = left.T.copy()
    return 2 * size**3 / seconds_of(lambda: left @ right, repeats=5)


def machine():
    """Processor, libraries, and the rate of matrix products, to which the other rows refer."""
    import numpy as np
    from threadpoolctl import threadpool_info

    blas = [f"{lib['internal_api']} {lib['version']} {lib.get('architecture', '')}" for lib in threadpool_info()[:1]]
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text(encoding="utf-8").splitlines() if cpu.is_file() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    threads = os.environ.get("OMP_NUM_THREADS", "")
    rows = [{"case": f"{name}, {threads} threads, numpy {np.__version__}, {' '.join(blas)}"}]
    for dtype in ("float64", "float32"):
        rate = product_rate(dtype) / 1e9
        rows.append({"case": f"matrix product of 2048, {dtype}", "ratio": rate, "of": "GFLOP/s"})
    return rows


def orthonormal(shape, n_heads, dtype="float64", seed=0):
    """Bases of random heads of a model's dimensions."""
    import numpy as np

    from headspaces.nulls.draws import random_subspaces

    return random_subspaces(n_heads, shape.d_model, shape.d_head, np.random.default_rng(seed)).astype(dtype)


def tiled_einsum(left, right):
    """Score pairs as TransformerLens 4.3 does: one einsum a tile of pairs, squared and summed, in torch."""
    import torch

    sources, targets = torch.from_numpy(left), torch.from_numpy(right)
    capacity = max(1, EINSUM_BYTES // (left.shape[2] * right.shape[2] * left.itemsize))
    rows = max(1, min(len(left), capacity // max(1, len(right))))
    columns = max(1, min(len(right), capacity // rows))
    scores = torch.empty(len(left), len(right), dtype=sources.dtype)
    for i in range(0, len(left), rows):
        for j in range(0, len(right), columns):
            overlap = torch.einsum("adr,bds->abrs", sources[i : i + rows], targets[j : j + columns])
            scores[i : i + rows, j : j + columns] = overlap.square().sum(dim=(-2, -1))
    return scores.numpy()


def kernel():
    """Measure the kernel on the demo's heads: 270 writers and 450 readers of 64 x 576."""
    import numpy as np

    from headspaces.geometry.kernel import operation_counts, squared_overlaps

    rows = []
    for dtype, budget in (("float64", 12), ("float32", 18)):
        left, right = (orthonormal(SMOLLM2, n, dtype, seed) for seed, n in enumerate((270, 450)))
        own = seconds_of(lambda left=left, right=right: squared_overlaps(left, right))
        gram = seconds_of(lambda left=left, right=right: squared_overlaps(left, right, algorithm="gram"), repeats=1)
        einsum = seconds_of(lambda left=left, right=right: tiled_einsum(left, right), repeats=1)
        np.testing.assert_allclose(squared_overlaps(left, right), tiled_einsum(left, right), rtol=1e-4)
        operations = operation_counts([left, right], [(slice(0, 270), slice(270, 720))])["operator"]
        fraction = operations / own / product_rate(dtype)
        case = f"270 x 450 heads of 64 x 576, {dtype}"
        of_einsum = operation_counts([left, right], [(slice(0, 270), slice(270, 720))])["gram"] / einsum
        rows += [
            {
                "case": case,
                "seconds": own,
                "ratio": einsum / own,
                "of": "tiled einsum's time",
                "budget": f">= {budget}",
            },
            {"case": case, "seconds": own, "ratio": gram / own, "of": "Gram algorithm's time"},
            {"case": case, "seconds": own, "ratio": fraction, "of": "matrix-product rate", "budget": ">= 0.65"},
            {
                "case": f"{case}, the einsum",
                "seconds": einsum,
                "ratio": of_einsum / product_rate(dtype),
                "of": "matrix-product rate",
            },
        ]
    return rows


def observed_pairs():
    """All observed pairs of the demo's shape against a loop over scipy.linalg.subspace_angles."""
    import numpy as np
    from scipy.linalg import subspace_angles

    from headspaces.geometry.overlaps import observed_overlaps
    from headspaces.geometry.pairs import layer_overlaps

    layers = SMOLLM2.n_layers
    bases = {
        kind: orthonormal(SMOLLM2, layers * SMOLLM2.n_heads(kind), seed=seed).reshape(
            layers, -1, SMOLLM2.d_model, SMOLLM2.d_head
        )
        for seed, kind in enumerate("OQKV")
    }
    block = {f"{kind}/basis": stack for kind, stack in bases.items()}
    block |= {f"rank/{kind}": np.full(stack.shape[:2], SMOLLM2.d_head) for kind, stack in bases.items()}
    heads = np.concatenate([bases["O"][0], bases["Q"][1]])
    pairs = [(heads[i], heads[j]) for i in range(len(heads)) for j in range(i)][:60]
    loop = seconds_of(lambda: [subspace_angles(u, v) for u, v in pairs], repeats=1) / len(pairs)
    n_pairs = 61065
    both = seconds_of(lambda: observed_overlaps([block]), repeats=1)
    rho = seconds_of(lambda: layer_overlaps(bases))
    case = f"{n_pairs} pairs of the demo's shape"
    return [
        {"case": f"{case}, rho and angle", "seconds": both, "ratio": n_pairs * loop / both, "of": "scipy loop's time",
         "budget": ">= 80"},
        {"case": f"{case}, rho", "seconds": rho, "ratio": n_pairs * loop / rho, "of": "scipy loop's time",
         "budget": ">= 800"},
    ]  # fmt: skip


def observed_layers(n_layers=2):
    """Layers of Qwen3-235B's shape from the weights on: bases, direct sums, rho and angle of 2,016 pairs in each."""
    import numpy as np

    from headspaces.geometry.bases import block_bases
    from headspaces.geometry.heads import LayerHeads, Norm
    from headspaces.geometry.overlaps import observed_overlaps

    shape = QWEN3_LAYER
    factors = np.random.default_rng(0).standard_normal((shape.n_heads("O"), shape.d_model, shape.d_head))
    layers = [LayerHeads(layer, {"O": factors}, Norm("none")) for layer in range(n_layers)]
    start = time.perf_counter()
    block = block_bases(layers, fold_norms=True, dtype="float32")
    bases = (time.perf_counter() - start) / n_layers
    start = time.perf_counter()
    observed_overlaps([block])
    overlaps = (time.perf_counter() - start) / n_layers
    case = f"Qwen3-235B, a layer's 2016 pairs, rho and angle (bases {bases:.3g} s, overlaps {overlaps:.3g} s)"
    return [{"case": case, "seconds": bases + overlaps, "budget": "<= 15 s, <= 4096 MiB"}]


def synthetic_factors(shape, dtype="float32"):
    """Weights whose directions are unequally strong, as learnt ones are: one layer, used for all."""
    import numpy as np

    rng = np.random.default_rng(0)
    gains = np.geomspace(1, 0.03, shape.d_model)[:, None]
    made = {}
    for kind in "OQKV":
        stack = rng.standard_normal((shape.n_heads(kind), shape.d_model, shape.d_head), dtype=dtype)
        made[kind] = stack * gains.astype(dtype)

    def factors(_, kind):
        return made[kind].astype("float64")

    return factors


def null_rows(name, shape, dtype, kinds="OQKV", budget=""):
    """One sample of both null models with all comparisons, and its pairs across layers by the other algorithms.

    These are timed on a rectangle of the same bases and scaled by the number of pairs: each takes the same time for
    every pair.
    """
    import math

    from headspaces.geometry.kernel import squared_overlaps
    from headspaces.nulls import samples as nulls
    from headspaces.study.models import Model

    in_pairs, own = [], nulls.layer_overlaps

    def timed(stacks, **options):
        start = time.perf_counter()
        found = own(stacks, **options)
        in_pairs.append((time.perf_counter() - start, stacks["O"][0].copy(), stacks["R"][-1].copy()))
        return found

    run = nulls.NullRun(synthetic_factors(shape), shape, kinds, "synthetic", 0, dtype)
    nulls.layer_overlaps = timed
    try:
        times = {
            null: seconds_of(lambda null=null: nulls.null_shard(run, null, range(1)), repeats=1)
            for null in nulls.NULL_MODELS
        }
    finally:
        nulls.layer_overlaps = own
    total, case = sum(times.values()), f"{name}, one sample of both nulls, {dtype}"
    split = ", ".join(f"{null} {seconds:.3g} s" for null, seconds in times.items())
    once = Model(name="synthetic", source="synthetic", kinds=kinds, shape=shape).null_sample_operations
    rotating = 2 * shape.d_model * shape.n_layers * sum((shape.n_heads(kind) * shape.d_head) ** 2 for kind in kinds)
    fraction = (2 * once - rotating) / total / product_rate(dtype)
    rows = [
        {"case": f"{case} ({split})", "seconds": total, "budget": budget},
        {"case": case, "seconds": total, "ratio": fraction, "of": "matrix-product rate, at the least operations"},
    ]
    if in_pairs:
        kernel_seconds = sum(seconds for seconds, _, _ in in_pairs)
        _, left, right = in_pairs[0]
        rectangles = 2 * math.comb(shape.n_layers, 2)
        by_gram = rectangles * seconds_of(lambda: squared_overlaps(left, right, algorithm="gram"))
        by_einsum = rectangles * seconds_of(lambda: tiled_einsum(left, right))
        pairs = f"{name}, its {rectangles * len(left) * len(right)} pairs across layers"
        for what, seconds in (("Gram algorithm", by_gram), ("tiled einsum", by_einsum)):
            rows += [
                {"case": pairs, "seconds": kernel_seconds, "ratio": seconds / kernel_seconds, "of": f"{what}'s time"},
                {"case": case, "seconds": total, "ratio": (total - kernel_seconds + seconds) / total,
                 "of": f"the sample's time with the {what}"},
            ]  # fmt: skip
    return rows


def swap_rows(name, shape, n_layers, budget=""):
    """One sample of the swap null of a model's shape, from burnt-in bases.

    The work within layers grows with their number, that across layers with the number of their pairs: some layers are
    timed, and scaled.
    """
    import math
    from dataclasses import replace

    from headspaces.nulls import samples as nulls
    from headspaces.nulls.swap_run import SwapRun
    from headspaces.study.models import Model

    some = replace(shape, n_layers=n_layers)
    model = Model(name="synthetic", source="synthetic", kinds="OQKV", shape=shape)
    bases = {kind: orthonormal(shape, shape.n_heads(kind), model.scores_dtype) for kind in "OQKV"}
    in_pairs, own = [], nulls.layer_overlaps

    def timed(stacks, **options):
        start = time.perf_counter()
        found = own(stacks, **options)
        in_pairs.append(time.perf_counter() - start)
        return found

    run = SwapRun(lambda _, kind: bases[kind], some, "OQKV", "synthetic", 0, model.scores_dtype, sweeps=1)
    nulls.layer_overlaps = timed
    try:
        seconds = seconds_of(lambda: nulls.null_shard(run, "swap", range(1)), repeats=1)
    finally:
        nulls.layer_overlaps = own
    across = in_pairs[0] * math.comb(shape.n_layers, 2) / math.comb(n_layers, 2)
    total = (seconds - in_pairs[0]) * shape.n_layers / n_layers + across
    scaled = "" if n_layers == shape.n_layers else f", scaled from {n_layers} layers"
    fraction = (model.pair_operations + model.sweep_operations) / total / product_rate(model.scores_dtype)
    case = f"{name}, one sample of the swap null, {model.scores_dtype}{scaled}"
    return [
        {"case": case, "seconds": total, "ratio": fraction, "of": "matrix-product rate, an SVD as 100 d^3",
         "budget": budget}
    ]  # fmt: skip


def synthetic_layers(shape, seed=0):
    """Random heads of a model's shape, without norms."""
    import numpy as np

    from headspaces.geometry.heads import LayerHeads, Norm

    rng = np.random.default_rng(seed)
    return [
        LayerHeads(
            layer,
            {kind: rng.standard_normal((shape.n_heads(kind), shape.d_model, shape.d_head)) for kind in "OQKV"},
            Norm("none"),
        )
        for layer in range(shape.n_layers)
    ]


def checkpoint_layers(folder):
    """Read the heads of a local checkpoint."""
    import tempfile

    from headspaces.weights.blocks import read_block
    from headspaces.weights.fetch import fetch_block
    from headspaces.weights.source import read_headers

    headers = read_headers(folder)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "layers.safetensors"
        fetch_block(headers, range(headers.shape.n_layers), path)
        return read_block(path)


def affinities():
    """All of PK's affinities from the weights on, beside TransformerLens 4.3 where it can be imported.

    The weights are random ones of GPT-2's shape, or those of the checkpoint in the folder that ``--checkpoint`` names.
    """
    import numpy as np

    from headspaces.affinity.run import affinity

    folder = os.environ.get(CHECKPOINT)
    layers = checkpoint_layers(folder) if folder else synthetic_layers(GPT2)
    where = Path(folder).name if folder else "GPT-2's shape"
    found = []
    pk = seconds_of(lambda: found.append(affinity([lambda: layers], scores=[])))
    both = seconds_of(lambda: found.append(affinity([lambda: layers], scores=["cs"])), repeats=1)
    arrays, peak = found[-1], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    n_pairs = int(np.isfinite(arrays["pk/OQ"]).sum())
    case = f"{where}, projection kernel of {n_pairs} x 16 pairs, bases included"
    composition = f"{where}, composition scores of {n_pairs} x 3 pairs"
    rows = [
        {"case": case, "seconds": pk, "budget": "< 3 s", "peak": peak},
        {"case": composition, "seconds": both - pk, "peak": peak},
    ]
    try:
        from benchmarks.lens import composition_of, kernel_of
    except ImportError as error:
        return [*rows, {"case": f"TransformerLens 4.3 is not here ({error})"}]
    measured = (
        (case, pk, 16 / 3, kernel_of, "pk", "our time, by TransformerLens 4.3 for 3 of the 16 kinds, scaled"),
        (composition, both - pk, 1, composition_of, "cs", "our time, by TransformerLens 4.3"),
    )
    for what, own, scale, call, name, of in measured:
        start = time.perf_counter()
        theirs = call(layers)
        seconds = time.perf_counter() - start
        off = max(float(np.nanmax(np.abs(arrays[f"{name}/{kind}"] - scores))) for kind, scores in theirs.items())
        if not off < LENS_TOLERANCE:
            raise SystemExit(f"{name}: TransformerLens differs by {off:.2g}, expected at most {LENS_TOLERANCE}")
        ratio = scale * seconds / own
        rows.append({"case": f"{what}: values equal to {off:.1g}", "seconds": seconds, "ratio": ratio, "of": of})
    return rows


def growth():
    """Exponents of the time of a null sample in the numbers of heads, layers and dimensions."""
    import numpy as np

    from headspaces.nulls.samples import NullRun, null_shard
    from headspaces.study.models import Model

    base = {"n_layers": 8, "d_model": 768, "n_query_heads": 12, "n_kv_heads": 12, "d_head": 64}
    rows = []
    for what, keys in (
        ("heads", ("n_query_heads", "n_kv_heads")), ("layers", ("n_layers",)), ("d_model", ("d_model",)),
    ):  # fmt: skip
        found = []
        for factor in (1, 2, 4):
            shape = Shape(**(base | {key: base[key] * factor for key in keys}))
            run = NullRun(synthetic_factors(shape), shape, "OQ", "synthetic", 0)
            found.append(seconds_of(lambda run=run: null_shard(run, "reassignment", range(1)), repeats=2))
            model = Model(name="synthetic", source="synthetic", kinds="OQ", shape=shape)
            rows.append({"case": f"{what} x {factor}", "seconds": found[-1], "operations": model.pair_operations})
        exponent = float(np.polyfit(np.log([1, 2, 4]), np.log(found), 1)[0])
        rows.append({"case": f"{what}, 1 to 4 times", "seconds": found[-1], "ratio": exponent, "of": "exponent"})
    return rows


def startup():
    """Time from nothing to a job's first own line, and its share of all jobs of the last runs in this folder."""
    import ast

    empty = _start("pass")
    rows, spent = [{"case": "python alone", "seconds": empty}], []
    for script in sorted((ROOT / "workflow" / "scripts").glob("*.py")):
        nodes = ast.parse(script.read_text(encoding="utf-8")).body
        imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
        seconds = _start("\n".join(map(ast.unparse, imports)))
        jobs = _job_seconds(script.stem)
        spent.append((seconds * len(jobs), sum(jobs)))
        case = f"imports of a {script.stem} job, of which {len(jobs)} ran in {sum(jobs):.1f} s"
        rows.append({"case": case, "seconds": seconds, "ratio": seconds / empty, "of": "python alone"})
    starting, running = map(sum, zip(*spent, strict=True))
    if running:
        rows.append({"case": "start-up of all jobs", "seconds": starting, "ratio": starting / running,
                     "of": "all jobs' time", "budget": "<= 0.25"})  # fmt: skip
    return rows


def _job_seconds(script):
    """Seconds of the jobs of a script, from Snakemake's own records in ``results/benchmarks``."""
    folder = ROOT / "results" / "benchmarks"
    if script in ("null_shard", "swap_shard"):
        files = folder.glob("nulls/*/*.tsv")
    elif script == "nulls":
        files = folder.glob("nulls/*.tsv")
    else:
        files = [file for name in (script, f"{script}s") for file in (folder / name).rglob("*.tsv")]
    return [float(file.read_text(encoding="utf-8").splitlines()[1].split("\t")[0]) for file in files]


def _start(code):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return seconds_of(lambda: subprocess.run([sys.executable, "-c", code], check=True, env=environment))


ITEMS = {
    "machine": machine,
    "kernel": kernel,
    "observed": observed_pairs,
    "affinity": affinities,
    "nulls-gpt2": lambda: null_rows("GPT-2", GPT2, "float64"),
    "nulls-smollm2": lambda: null_rows("SmolLM2", SMOLLM2, "float32"),
    "swap-smollm2": lambda: swap_rows("SmolLM2", SMOLLM2, 30),
    "swap-qwen2.5-7b": lambda: swap_rows("Qwen2.5-7B", QWEN25, 3, budget="<= 300 s"),
    "nulls-qwen2.5-7b": lambda: null_rows("Qwen2.5-7B", QWEN25, "float32", budget="<= 300 s, <= 6144 MiB"),
    "nulls-qwen3-235b": lambda: null_rows("Qwen3-235B, one layer", QWEN3_LAYER, "float32", "O"),
    "observed-qwen3-235b": observed_layers,
    "growth": growth,
    "startup": startup,
}
"""By name; the order of the table."""
