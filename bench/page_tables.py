"""The tables of docs/benchmarks.md: what each asks, its command, how its rows are shown, and its bars.

Prose here has no measured figure: what a page says of a figure is made from rows by `judge`.
"""
import dataclasses
import re
import typing


@dataclasses.dataclass(frozen=True)
class Table:
    name: str      # of --only
    title: str
    prose: str
    commands: list
    seconds: int   # an estimate of what it takes on two cores
    render: typing.Callable
    judge: typing.Callable = lambda rows: []
    door: str = "bench"  # of ./dev; a table of another one is not measured by `bench page`, which renders it


def seconds_text(value):
    for unit, factor in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def bytes_text(value):
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value} B"


def size_text(value):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= factor and value % factor == 0:
            return f"{value // factor} {unit}"
    return f"{value} B"


def ratio_text(row):
    return f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f}, {row['pairs']} pairs)"


def interval_text(row, digits=3):
    low, high = row["ratio_interval_95"]
    return f"{row['ratio_median']:.{digits}f} ({low:.{digits}f} to {high:.{digits}f}, {row['pairs']} pairs)"


def grid(heads, rows):
    return [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads),
            *(f"| {' | '.join(map(str, row))} |" for row in rows)]


def bar(what, value, limit, at_least=True, digits=2):
    met = value >= limit if at_least else value <= limit
    sign = "at least" if at_least else "at most"
    return f"- {'Met' if met else '**Missed**'}: {what} is {value:.{digits}f}; the bar is {sign} {limit:g}."


# ---- step

def render_step(rows):
    measured = [row for row in rows if row["question"] != "losses"]
    lines = grid(["ranks, dtype", "peer", "hanji", "peer's time over hanji's", "matmuls' share of hanji's step"],
                 [[f"{row['ranks']}, {row['dtype']}",
                   ", ".join([row["peer"], *(row[key] for key in ("peer_cuts", "schedule") if key in row)]),
                   seconds_text(row["first_seconds"]), ratio_text(row),
                   f"{100 * row['products_seconds'] / row['first_seconds']:.0f} %" if row["products_seconds"] else "-"]
                  for row in measured])
    kernels = sorted({f"{row['dtype']}: {row['kernels']}" for row in measured})
    losses = [f"Losses in {row['dtype']} differ by "
              + (f"{row['apart']:.1e} (at most {row['at_most']:.0e})." if "apart" in row else
                 f"{row['times_peers_spread']:.1f} times the spread between the peer's own two GEMM paths (at most "
                 f"{row['at_most']}, {row['initial_values']} initial values).")
              for row in rows if row["question"] == "losses"]
    return [*lines, "", *losses, "Kernels: " + "; ".join(kernels) + "."]


def render_passes(rows):
    lines = []
    for dtype in sorted({row["dtype"] for row in rows}, reverse=True):
        of = [row for row in rows if row["dtype"] == dtype]
        limit, of = of[-1], of[:-1]
        lines += [*grid([f"pass, {dtype}", "calls", "bytes", "seconds", "bytes over memory's rate", "seconds over that"],
                        [[row["pass"], row["calls"], bytes_text(row["bytes"]) if row["bytes"] else "none",
                          seconds_text(row["seconds"]), seconds_text(row["memory_seconds"]) if row["bytes"] else "-",
                          f"{row['seconds'] / row['memory_seconds']:.2f}" if row["bytes"] else "-"] for row in of]),
                  "", f"All of {dtype}: {seconds_text(sum(row['seconds'] for row in of))}; bytes over the rate: "
                  f"{seconds_text(sum(row['memory_seconds'] for row in of))}; an update in place moves "
                  f"{bytes_text(limit['memory_bytes_per_second'])}/s.", ""]
    return lines[:-1]


def render_tensor(rows):
    moves = [row for row in rows if row["question"] == "moves"]
    lines = render_step([row for row in rows if row["question"] != "moves"])
    if not moves:
        return lines
    return [*lines, "", *grid(["samples, stream", "each MLP moves", "hanji", "the other choice's time over it"],
                              [[f"{row['batch']}, {'cut by tokens' if row['sequence'] else 'whole'}", row["moves"],
                                seconds_text(row["first_seconds"]), ratio_text(row)] for row in moves])]


def render_pipeline(rows):
    beside = [row for row in rows if row["question"] == "zero bubble"]
    lines = render_step([row for row in rows if row["question"] != "zero bubble"])
    if not beside:
        return lines
    return [*lines, "", *grid(["schedule", "forward/backward_input/backward_weight of each rank", "computations of a step",
                               "over the simulator's", "simulated bubble"],
                              [[row["schedule"], row["times"].replace(",", ", "), seconds_text(row["seconds"]),
                                f"{row['seconds'] / row['simulated_seconds']:.2f}", f"{row['bubble']:.3f}"]
                               for row in beside])]


BOTH_MEDIUM = ", both medium"


def split_medium(rows, name):
    """Rows by what `name` says of the peer: those of float32 as it comes on our side, and those of both medium."""
    medium = [row for row in rows if row[name].endswith(BOTH_MEDIUM)]
    return [row for row in rows if row not in medium], medium


def judge_medium(rows, name, limit):
    """The bar holds where the processor has faster products of inputs rounded to bf16."""
    if rows and not any(row["products"] == "medium" for row in rows):
        return ["No bar for both medium: `compute.products = medium` changes nothing on this processor."]
    return [bar(f"the ratio to {', '.join([row[name], *(row[key] for key in ('peer_cuts', 'schedule') if key in row)])},",
                row["ratio"], limit) for row in rows if row["products"] == "medium"]


def onednn_leads(row):
    """Whether hanji took oneDNN's matmuls as about twice as fast as MKL's, with float32's accuracy."""
    faster = re.search(r"gemm\.onednn \((\d+) % faster", row["kernels"])
    return faster is not None and int(faster[1]) >= 80


def judge_step(rows):
    rows, medium = split_medium([row for row in rows if row["question"] == "step" and row["ranks"] == 2
                                 and row["dtype"] == "float32"], "peer")
    bars = judge_medium(medium, "peer", 1.15)
    if not any(map(onednn_leads, rows)):
        return ["No bar: the ratio's bars hold where oneDNN has twice MKL's rate. Compare the matmuls' share.", *bars]
    return [*(bar(f"2 ranks, {row['dtype']}, against {row['peer']}", row["ratio"],
                  1.8 if row["peer"].endswith("highest") else 1.15) for row in rows), *bars]


def judge_tensor(rows):
    rows, medium = split_medium([row for row in rows if row["question"] == "tensor"], "peer")
    bars = judge_medium(medium, "peer", 1.7)
    for row in rows:
        leads = onednn_leads(row)
        limit = 1.15 if not leads else 2.0 if row["peer"].endswith("highest") else 1.3
        bars.append(bar(f"the ratio to {row['peer']}, {row['peer_cuts']},", row["ratio"], limit))
        if not leads and row["products_seconds"]:
            bars.append(bar("the matmuls' share", row["products_seconds"] / row["first_seconds"], 0.85))
    return bars


def judge_pipeline(rows):
    rows, medium = split_medium([row for row in rows if row["question"] == "pipeline"], "peer")
    bars = judge_medium(medium, "peer", 1.15)
    for row in rows:
        leads, what = onednn_leads(row), f"{row['schedule']}, the ratio to {row['peer']},"
        if leads:
            bars.append(bar(what, row["ratio"], 1.5 if row["peer"].endswith("highest") else 1.1))
        elif row["products_seconds"]:
            full = 1 + (row["ranks"] - 1) / row["micro_batches"]
            bars.append(bar(f"{row['schedule']}, the matmuls' share times 1 + bubble,",
                            full * row["products_seconds"] / row["first_seconds"], 0.85))
    return bars


# ---- collectives

def peer_text(row, name):
    peer = row["peers"].get(name) or {}
    if not peer.get("ratio"):
        return "-"
    low, high = peer["ratio_interval"]
    return f"{peer['ratio']:.2f} ({low:.2f} to {high:.2f})"


def call_text(row):
    form = {True: "in place", False: "out of place"}[row["in_place"]]
    return f"`{row['routine']}`, {size_text(row['bytes'])}, {row['type']}, {row['placement']}, {form}"


def render_collectives(rows):
    lines = []
    for ranks in sorted({row["ranks"] for row in rows}):
        of = [row for row in rows if row["ranks"] == ranks]
        lines += grid([f"{ranks} ranks", "hanji", "Open MPI's time over hanji's", "Gloo's", "PyTorch's", "`%lim`"],
                      [[call_text(row), seconds_text(row["seconds_median"]),
                        *(peer_text(row, name) for name in ("openmpi", "gloo", "pytorch")),
                        f"{row['percent_of_limit']:.0f}" if row["percent_of_limit"] else "-"] for row in of]) + [""]
    reasons = sorted({f"{name}: {peer['reason'].splitlines()[0]}" for row in rows for name, peer in row["peers"].items()
                      if peer.get("reason") and name in ("openmpi", "gloo", "pytorch")})
    return [*lines, *(["A dash has these reasons:", "", *(f"- {reason}" for reason in reasons)] if reasons else [])]


# routine, bytes, ranks, in place, peer: the bar of the peer's time over hanji's, tensors in the heap
COLLECTIVE_BARS = {
    ("all_reduce", 8, 2, True, "openmpi"): 1.0, ("all_reduce", 8, 4, True, "openmpi"): 0.8,
    ("all_reduce", 4 << 20, 2, True, "openmpi"): 8, ("all_reduce", 64 << 20, 2, True, "openmpi"): 8,
    ("all_reduce", 64 << 20, 2, True, "gloo"): 12, ("all_reduce", 64 << 20, 4, True, "openmpi"): 8,
    ("all_gather", 64 << 20, 2, False, "openmpi"): 2.5, ("all_to_all", 64 << 20, 2, False, "openmpi"): 3}


def judge_collectives(rows):
    verdicts = []
    for row in rows:
        if row["placement"] != "heap" or row["type"] != "float32":
            continue
        for name, peer in row["peers"].items():
            limit = COLLECTIVE_BARS.get((row["routine"], row["bytes"], row["ranks"], row["in_place"], name))
            if limit and peer.get("ratio"):
                verdicts.append(bar(f"{name}'s time over hanji's, {call_text(row)}, {row['ranks']} ranks", peer["ratio"],
                                    limit))
    return verdicts


# ---- fsdp

TRAIN_NAMES = {"server": "`parallel.data = server`", **{name: f"`parallel.data = {name}`: `shard_optimizer`" for name in
                                                        ("zero1", "zero2", "zero3")}}
PLAIN_NAMES = {"zero1": "`shard_optimizer` (ZeRO-1)", "zero2": "`shard_optimizer`, gradients freed (ZeRO-2)",
               "fully": "`fully_shard`, one copy of the parameters on the host",
               "lens": "`fully_shard`, units found by the lens", "gathered": "`fully_shard`, units gathered",
               "scaled": "`data_parallel` with loss scaling", "checkpointed": "`data_parallel`, all blocks `checkpointed`",
               "fp16": "`data_parallel`, `fp16_hook`", "bf16": "`data_parallel`, `bf16_hook`",
               "power_sgd": "`data_parallel`, `power_sgd_hook`, rank 4", "top_k": "`data_parallel`, `top_k_hook`, 1 %",
               "mixed": "`fully_shard`, `param_dtype` bfloat16, sums in float32"}


def render_pairs(names, base):
    def render(rows):
        return grid(["strategy", "a step", f"a step of {base}", "ratio", "losses differ by"],
                    [[names.get(row["strategy"], row["strategy"]), seconds_text(row["second_seconds"]),
                      seconds_text(row["first_seconds"]), ratio_text(row),
                      f"{row['apart']:.0e}" if row["apart"] else "0"] for row in rows])
    return render


def judge_train(rows):
    return [bar(f"{row['strategy']} over ddp", row["ratio"], 1.03, at_least=False) for row in rows]


def judge_peers(rows):
    rows, medium = split_medium(rows, "strategy")
    return [*(bar(f"{row['strategy']} over hanji's `fully_shard`", row["ratio"],
                  1.4 if row["strategy"].endswith("tuned") else 2.1) for row in rows),
            *judge_medium(medium, "strategy", 1.2)]


# ---- memory

MEMORY_NAMES = {"zero3": "`fully_shard`, one copy of the parameters on the host",
                "zero3:spawned": "`fully_shard` by `hanji::spawn`: ranks are forks of one process",
                "deferred": "`fully_shard` of what `hanji::deferred` built", "gathered": "`fully_shard`, units gathered",
                "zero1": "`shard_optimizer`, gradients kept (ZeRO-1)", "ddp": "`data_parallel`",
                "peer:fully_shard": "PyTorch `fully_shard` as it comes",
                "peer:ddp": "PyTorch DDP, fused AdamW, gradients that view the buckets"}


def render_memory(rows):
    first = rows[0]
    return [f"{first['parameters'] / 1e6:.1f} M parameters in {first['units']} units, {first['ranks']} ranks; the bound "
            f"is {bytes_text(first['bound_bytes'])}.", "",
            *grid(["strategy", "until wrapped", "peak of steps", "over the bound", "without the processes' start"],
                  [[MEMORY_NAMES.get(row["strategy"], row["strategy"]), bytes_text(row["wrapping_bytes"]),
                    bytes_text(row["peak_bytes"]), f"{row['peak_bytes'] / row['bound_bytes']:.2f}",
                    f"{(row['peak_bytes'] - row['start_bytes']) / row['bound_bytes']:.2f}"] for row in rows])]


def judge_memory(rows):
    return [bar(f"peak over the bound, {MEMORY_NAMES[row['strategy']]},", row["peak_bytes"] / row["bound_bytes"], 1.1,
                at_least=False) for row in rows if row["strategy"] in ("zero3", "zero3:spawned", "deferred")]


# ---- small questions

def render_first_step(rows):
    return grid(["hanji", "torchrun", "torchrun over hanji", "hanji's first start ever"],
                [[seconds_text(row["first_seconds"]), seconds_text(row["second_seconds"]), ratio_text(row),
                  seconds_text(row["first_ever_seconds"])] for row in rows])


def render_overlap(rows):
    return grid(["side", "2 unconnected runs", "2 connected ranks", "connected over unconnected"],
                [[row["side"], seconds_text(row["first_seconds"]), seconds_text(row["second_seconds"]), ratio_text(row)]
                 for row in rows])


def beside_text(row):
    return "nothing" if row["others"] == 0 else f"{row['others']} processes that compute"


def render_threads(rows):
    ranks = {(row["model"], row["others"]): row for row in rows if row["question"] == "ranks"}
    return grid(["model, beside", "threads that sleep", "threads that spin, over them", "chosen", "its speed over spinning",
                 "ranks of one thread"],
                [[f"`{row['model']}`, {beside_text(row)}", seconds_text(row["first_seconds"]), ratio_text(row),
                  row["chosen"], f"{row['speed_of_chosen']:.2f}",
                  seconds_text(ranks[row["model"], row["others"]]["seconds"])]
                 for row in rows if row["question"] == "threads"])


def judge_threads(rows):
    quiet = [row for row in rows if row["question"] == "threads" and row["others"] == 0]
    busy = [row for row in rows if row["question"] == "threads" and row["others"] > 0]
    return [*(bar(f"`{row['model']}` alone, the speed over spinning", row["speed_of_chosen"], 0.97) for row in quiet),
            *(bar(f"`{row['model']}` beside others, the speed over spinning", row["speed_of_chosen"], 5)
              for row in busy if row["model"] == "small")]


def render_stable(rows):
    grains, cuts = ([row for row in rows if row["question"] == question] for question in ("stable", "cuts"))
    return [*grid(["samples of a grain", "samples of a micro-batch of `run`", "`run`", "`stable`", "`stable` over `run`"],
                  [[row["grain"], row["micro_batch"], seconds_text(row["first_seconds"]),
                    seconds_text(row["second_seconds"]), ratio_text(row)] for row in grains]),
            "",
            *grid(["`train.cuts.features`", "`mesh.tp`", "`run`", "`stable`", "`stable` over `run`"],
                  [[row["cuts"], row["ranks"], seconds_text(row["first_seconds"]),
                    seconds_text(row["second_seconds"]), ratio_text(row)] for row in cuts])]


def judge_stable(rows):
    def name(row):
        return (f"{row['cuts']} blocks of features on {row['ranks']} ranks" if row["question"] == "cuts"
                else f"grains of {row['grain']} and micro-batches of {row['micro_batch']}")
    return [bar(f"`stable` over `run` with {name(row)}", row["ratio"], 1.3, at_least=False)
            for row in rows if row["question"] in ("stable", "cuts")]


def render_check_cost(rows):
    return grid(["`all_reduce` of", "with the comparison", "without", "with over without"],
                [[row["bytes"], seconds_text(row["seconds_checked"]), seconds_text(row["seconds_unchecked"]),
                  interval_text(row)] for row in rows])


def judge_check_cost(rows):
    return [bar(f"an all_reduce of {row['bytes']} with the comparison over one without", row["ratio_median"],
                row["limit"], at_least=False, digits=3) for row in rows]


def render_prepared_calls(rows):
    return grid(["ranks", "`all_reduce` of", "alternating sizes", "plain", "prepared", "prepared over plain"],
                [[row["ranks"], bytes_text(row["bytes"]), row["shapes"], seconds_text(row["seconds_plain"]),
                  seconds_text(row["seconds_prepared"]), interval_text(row)] for row in rows])


def render_context(rows):
    peers = [f"PyTorch's `context_parallel` does not run on CPUs: `{row['reason']}`" for row in rows
             if row["question"] == "context peer" and row["reason"]]
    return [*grid(["tokens", "ranks", "attention by", "the other", "time of a step of the other over it"],
                  [[row["tokens"], row["ranks"], row["first"], row["second"], ratio_text(row)]
                   for row in rows if row["question"] == "context"]), *(["", *peers] if peers else [])]


def render_axial(rows):
    def of(asked):
        return [row for row in rows if row["asks"] == asked]
    moved = [[row["residues"], row["ranks"], *(bytes_text(row[name]) if row[name] is not None else "not a square"
                                               for name in ("hanji_channels", "hanji_gather", "classic",
                                                            "two_dimensional"))] for row in of("bytes")]
    peaks = [[row["residues"], row["ranks"], row["schedule"], bytes_text(row["peak_bytes"]),
              f"{row['peak_bytes'] / row['pair_bytes']:.2f}"] for row in of("peak")]
    times = [[row["residues"], row["ranks"], row["hanji"], seconds_text(row["seconds"]), row["peer"],
              interval_text(row)] for row in of("time")]
    return [*grid(["residues", "ranks", "hanji, channels", "hanji, gather", "classic", "two-dimensional"], moved), "",
            *grid(["residues", "ranks", "schedule", "peak of a rank", "pair tensors"], peaks), "",
            *grid(["residues", "ranks", "hanji by", "it takes", "beside", "hanji over it"], times)]


def judge_axial(rows):
    """By channels: bytes and peaks; steps of 2 ranks by any way. The program's own verdict is in each row."""
    def of(asked):
        return [row for row in rows if row["asks"] == asked]

    def peak(like, name):
        return next((row["peak_bytes"] for row in of("peak") if row["schedule"] == name
                     and (row["ranks"], row["residues"]) == (like["ranks"], like["residues"])), None)
    fewest = [row["hanji_channels"] / min(row[name] for name in ("classic", "two_dimensional") if row[name] is not None)
              for row in of("bytes")]
    bars = [bar("by channels, bytes over the fewest of the others, the most of any ranks and residues,", max(fewest), 1,
                at_least=False)]
    for row in (row for row in of("peak") if "met" in row):
        for name, limit in (("classic", 1), ("two-dimensional", 7 / 6)):
            if peak(row, name):
                bars.append(bar(f"by channels on {row['ranks']} ranks, the peak over the {name} one's",
                                row["peak_bytes"] / peak(row, name), limit, at_least=False))
    for row in (row for row in of("time") if row["peer"] == "classic"):
        low, high = row["ratio_interval_95"]
        end, limit = (high, 1) if row["residues"] >= 256 else (low, 1.03)
        what = f"{row['residues']} residues, hanji by {row['hanji']} over classic, the interval's {'high' if limit == 1 else 'low'} end"
        bars.append(bar(what, end, limit, at_least=False, digits=3))
    return bars


def render_attention(rows):
    names = {"math": "hanji, vectors of float32", "tiles": "hanji, bf16 tiles", "pytorch": "PyTorch, flash"}
    return grid(["samples x tokens x heads x width", "kernel", "GF/s", "a plain bf16 product", "error",
                 "its time over that of hanji's last"],
                [[f"{row['samples']} x {row['tokens']} x {row['heads']} x {row['width']}", names[row["kernel"]],
                  f"{row['flops_per_second'] / 1e9:.0f}", f"{row['products_flops_per_second'] / 1e9:.0f} GF/s",
                  f"{row['error']:.1e}", "1" if row["kernel"] == row["over"] else interval_text(row, 2)] for row in rows])


def judge_attention(rows):
    return [bar(f"time of {row['kernel']} over {row['over']}, {row['tokens']} tokens,", row["ratio_median"], 1.0)
            for row in rows if row["kernel"] != row["over"]]


def render_linear(rows):
    return grid(["rows x inputs x outputs", "the fastest by price moves the", "it takes", "the other way moves the",
                 "predicted to take longer by", "time of the other way over it"],
                [[f"{row['rows']} x {row['inputs']} x {row['outputs']}", row["moved"], seconds_text(row["seconds"]),
                  row["other"], seconds_text(row["predicted_saving"]), interval_text(row, 2)] for row in rows])


def judge_linear(rows):
    return [bar(f"time of the {row['other']} over the {row['moved']}, {row['rows']} x {row['inputs']} x {row['outputs']},",
                row["ratio_median"], 0.95) for row in rows]


def render_loader(rows):
    def over(row, name):
        found = row.get(name)
        return f"{found['ratio']:.2f} ({found['low']:.2f} to {found['high']:.2f})" if found else "not measured"

    def asked(question):
        return [row for row in rows if row["question"] == question]
    images, samples = ([row for row in rows if unit in row] for unit in ("images", "samples"))
    lines = [*grid(["images", "cores", "hanji, images/s", "over FFCV", "over torch's DataLoader", "which decodes by",
                    "over it by torchcodec", "over one thread's whole decode"],
                   [[row["images"], row["cores"], f"{row['images_per_second']['hanji']:,.0f}", over(row, "ffcv"),
                     over(row, "torch"), row["peer_decoder"] or "", over(row, "torchcodec"), over(row, "decode")]
                    for row in images]), "",
             *grid(["samples", "cores", "hanji, samples/s", "over torch::data", "over nanoGPT's numpy.memmap",
                    "over one thread's copy within its caches", "over one of rows at random places"],
                   [[row["samples"], row["cores"], f"{row['samples_per_second']['hanji']:,.0f}", over(row, "torch_data"),
                     over(row, "numpy"), over(row, "copy"), over(row, "copy_rows")] for row in samples]), ""]

    def each(values, text):
        return ", ".join(f"{name} {text(value)}" for name, value in sorted(values.items()))
    lines += grid(["images", "first batch, from the opening of the file", "memory of its own, anonymous and shared"],
                  [[row["case"], each(row["first_batch_seconds"], seconds_text), each(row["memory_bytes"], bytes_text)]
                   for row in asked("loader start")])
    lines += ["", *grid(["images", "first epoch with checksums over one without"],
                        [[row["case"], f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})"]
                         for row in asked("loader checksums")])]
    return [*lines, "", *grid(["images", "pixels beside those of", "mean, levels of 255", "most"],
                              [[row["case"], row["peer"], f"{row['mean_levels']:.2f}", f"{row['most_levels']:.0f}"]
                               for row in asked("loader pixels")])]


# Goals over FFCV, and where it is not installed over one thread's decode: FFCV's golden rate of two cores by it times the goal.
LOADER_GOALS = {"500 x 375 JPEG": (2.5, 2.0), "500 x 375 JPEG, row index": (2.5, 2.0), "256 x 192 JPEG": (2.2, 1.34), "256 x 192 raw": (5, None),
                "32 x 32 raw, CIFAR's stages": (6, None)}


def judge_loader(rows):
    bars = []
    for row in rows:
        case = row.get("images") or row.get("samples") or row.get("case")
        if row["question"] == "loader" and row["cores"] == 2:
            over_ffcv, over_decode = LOADER_GOALS.get(case, (None, None))
            name = next((name for name in ("ffcv", "decode") if name in row), None)
            goal = {"ffcv": over_ffcv, "decode": over_decode}.get(name)
            if goal:
                of = {"ffcv": "FFCV", "decode": "one thread's whole decode"}[name]
                bars.append(bar(f"hanji over {of}, {case} on 2 cores,", row[name]["ratio"], goal))
            if case.startswith("500") and "torch" in row:
                bars.append(bar(f"hanji over torch's DataLoader, {case} on 2 cores,", row["torch"]["ratio"], 4.5))
        if row["question"] == "loader" and "samples" in row and row["cores"] == 1:
            bars.append(bar(f"hanji over torch::data, {case} on one core,", row["torch_data"]["ratio"], 3.5))
            bars.append(bar(f"hanji over one thread's copy, {case} on one core,", row["copy"]["ratio"], 0.8))
        if row["question"] == "loader start":
            first, memory = row["first_batch_seconds"], row["memory_bytes"]
            bars.append(bar(f"seconds to the first batch, {case},", first["hanji"], 0.05, at_least=False, digits=3))
            if "ffcv" in memory:
                bars.append(bar(f"memory over FFCV's, {case},", memory["hanji"] / memory["ffcv"], 0.25, at_least=False))
        if row["question"] == "loader checksums":
            bars.append(bar(f"a first epoch with checksums over one without, {case},", row["ratio"], 1.03,
                            at_least=False, digits=3))
    return bars


def render_lens(rows):
    built = [row for row in rows if row["question"] == "deferred"]
    seen = [row for row in rows if "ratio_median" in row]
    one, = (row for row in rows if "seconds_added" in row)
    low, high = one["interval_95"]
    return [*grid(["a training step of", "operations", "without an observer", "with over without"],
                  [[row["model"], row["operations"], seconds_text(row["seconds_unseen"]), interval_text(row)]
                   for row in seen]), "",
            f"An observer adds {seconds_text(one['seconds_added'])} ({seconds_text(low)} to {seconds_text(high)}) per "
            f"operation, at {one['model']} ({seconds_text(one['seconds_unseen'])} without).", "",
            *grid(["built without memory", "parameters", "time", "peak memory of the process"],
                  [[row["model"], f"{row['parameters']:.2e}", seconds_text(row["seconds"]),
                    bytes_text(row["most_memory_bytes"])] for row in built])]


def judge_lens(rows):
    return ([bar(f"a step of {row['model']} with an observer over one without", row["ratio_median"], row["limit"],
                 at_least=False, digits=3) for row in rows if "ratio_median" in row]
            + [bar(f"seconds to build {row['model']}", row["seconds"], row["limit_seconds"], at_least=False)
               for row in rows if row["question"] == "deferred"])


def render_server(rows):
    def times(row, name, model):
        return "{} ({} to {})".format(*map(seconds_text, row[name])) if row[name] else \
            f"a model: {seconds_text(row[model])} at {bytes_text(row['model_bytes_per_second'])}/s"
    shown = [row for row in rows if row["seconds"] or row["workers"] == 8]
    return grid(["workers, servers", "the server's step", "all-reduce and update", "rank 0 sends, receives",
                 "busiest link", "network"],
                [[f"{row['workers']}, {row['servers']} more" + (", workers serve" if row["serve_too"] else ""),
                  times(row, "seconds", "model_seconds"), times(row, "all_reduce_seconds", "all_reduce_model_seconds"),
                  f"{bytes_text(row['sent_bytes'])}, {bytes_text(row['received_bytes'])}",
                  bytes_text(row["busiest_bytes"]), bytes_text(row["network_bytes"])] for row in shown])


def render_c10d(rows):
    return grid(["work", "\"hanji\"", "\"gloo\"", "\"gloo\" over \"hanji\""],
                [[row["work"], seconds_text(row["first_seconds"]), seconds_text(row["second_seconds"]), ratio_text(row)]
                 for row in rows])


def render_prediction(rows):
    value, = rows
    named = {**{f"{name} ranks": one for name, one in value["by_ranks"].items()},
             **{f"{name} tensors": one for name, one in value["by_placement"].items()}, "all": value["all"]}
    return [*grid(["calls", "number", "median error", "p90", "by terms alone", "good picks"],
                  [[name, one["cases"], *(f"{100 * one[key]:.1f} %" for key in
                                          ("median_error", "p90_error", "median_error_by_terms", "good_picks"))]
                   for name, one in named.items()]), "",
            "Median error of each piece: " + ", ".join(
                f"{100 * one['median_error']:.1f} % ({one['ranks']} ranks)" for one in value["pieces"]) + ". Worst picks:",
            "", *(f"- `{one['routine']}` of {size_text(one['bytes'])}, {one['ranks']} ranks, {one['dtype']}, "
                  f"{one['placement']}: {one['pick']}, {100 * one['lost']:.0f} % slower than {one['best']}"
                  for one in value["worst_picks"][:3])]


def judge_prediction(rows):
    value, = rows
    bars = value["bars"]
    return [bar("the median error of a prediction", value["all"]["median_error"], bars["median_error"], at_least=False),
            bar("the part of good picks", value["all"]["good_picks"], bars["good_picks"])]


def render_hosts(rows):
    return grid(["hosts x ranks", "bytes", "time", "a host sent, of", "flat ring over hanji", "a host of the ring sent",
                 "above the wire's time"],
                [[f"{row['hosts']} x {row['ranks_per_host']}, {row['gigabits']:g} Gbit/s", size_text(row["bytes"]),
                  seconds_text(row["seconds"]), f"{bytes_text(row['sent_bytes'])} of {bytes_text(row['promised_bytes'])}",
                  ratio_text(row), bytes_text(row["ring_sent_bytes"]), f"{100 * row['above_wire']:.1f} %"]
                 for row in rows])


def judge_hosts(rows):
    return [line for row in rows for line in (
        bar(f"the flat ring's time over hanji's, {row['hosts']} hosts", row["ratio"], 1.4),
        bar(f"percent above the wire's time, {row['hosts']} hosts", 100 * row["above_wire"], 15, at_least=False, digits=1))]


def render_offload(rows):
    return grid(["a step with", "plain step", "over the plain one", "memory"],
                [[row["way"], seconds_text(row["seconds_plain"]), interval_text(row, 2), row["memory"]] for row in rows])


INTRODUCTION = """# Benchmarks

## Collectives by the command

`hanji bench` times any routine as nccl-tests does, with its columns and letters (`-b -e -i -f -n -w -c
-o -d -r -a`), and adds the algorithm, its predicted time with the error, and `%lim`: the bytes that
the routine must move at least, over the rate at which the same ranks update memory of their own,
measured in the same round.

```sh
hanji bench all_reduce all_gather --ranks 2 -b 64KiB -e 256KiB -f 4 --pairs 3
hanji bench all_reduce --ranks 2 --bytes 1MiB --pairs 3 --json
hanji bench all_reduce --ranks 2 --bytes 64KiB --pairs 3 --peer gloo --cold
```

- *Both placements* are measured: tensors in the heap, which peers access in place, and private tensors.
- *Results are compared first.* Every rank contributes whole numbers whose sums are exact. If one bit of
  the result is wrong, the call has no time and the command ends with code 7.
- *The time of a call* is that of its slowest rank (`-a` selects another). Before each call every rank
  writes its input anew and all ranks synchronize; `--hot` leaves the buffer alone, `--cold` goes through
  more memory than twice the last-level cache.
- *Each round times hanji and every peer*; the order alternates between rounds: `--peer
  openmpi,mpich,gloo,pytorch`. A ratio is the median over the pairs (`--pairs`, at least 30 by default),
  with the interval of that median and the p of a sign test. A missing peer has its reason in its place.
- *Unsteady pairs are left out.* Between rounds a flag goes from rank 0 to rank 1 and back. A pair in
  which that time changed by 20 % is left out; if most pairs are, there is no ratio.
- `--json` prints one object per line and nothing else.
- *A row* takes a line for the call and one for each form where the terminal has fewer columns than all need
  (130, or 205 with both forms), so in files too.

Open MPI and MPICH are measured by a small program of ours, built if `mpicc.openmpi` or `mpicc.mpich`
exists; `--python .venv/bin/python` names a Python with torch for `pytorch`.

## Programs

Each program answers one question. It interleaves both sides, verifies results before it times them,
and prints medians with their spread; `--json` prints one object per row. `bench/README.md` says how they
are built.

| question | command |
|---|---|
| a training step against PyTorch's DDP | `./dev bench step` |
| every pass over memory of a step, beside its bytes over the memory's rate | `./dev bench passes` |
| a step cut over ranks, against PyTorch's DTensor | `./dev bench tensor` |
| a step on a pipeline of ranks, against PyTorch's GPipe and 1F1B | `./dev bench pipeline` |
| a step whose ranks share out the tokens of samples, by Ulysses, by a ring, by one rank | `./dev bench context` |
| triangle updates that ranks share out, against a gather of operands and Cannon's algorithm | `./dev bench axial` |
| collectives over sizes, 2 and 4 ranks, against Open MPI, Gloo and PyTorch | `./dev bench all_reduce` |
| an all-reduce between hosts against a flat ring, and the wire | `./dev bench hosts` |
| start to the end of step 1 against torchrun | `./dev bench first_step` |
| images and tokens per second of a loader, first batch, memory, against FFCV, torch's DataLoader, torch::data and a bare decode | `./dev bench loader` |
| Python's DDP and FSDP2 on "hanji" against "gloo" | `./dev python && ./dev bench c10d` |
| what communication costs a step | `./dev bench overlap` |
| threads of a rank that wait asleep or spinning, alone and beside others | `./dev bench threads` |
| what bits that no plan changes cost | `./dev bench stable` |
| how near predicted times of collectives are | `./dev bench prediction` |
| what a parameter server moves, holds and takes, beside an all-reduce | `./dev bench server` |
| what it costs that ranks compare their calls | `./dev bench check_cost` |
| causal attention in bf16 against PyTorch's, and a plain product | `./dev bench attention` |
| what moves fastest where ranks share one linear layer | `./dev bench linear` |
| what prepared calls save over the plain functions | `./dev bench prepared_calls` |
| sharding against our DDP and PyTorch's `fully_shard`; loss scaling, hooks, recomputation | `./dev bench fsdp` |
| the host's memory, by our strategies and PyTorch's | `./dev bench memory` |
| what offload, and checkpoints by operation and within a budget, cost | `./dev bench offload` |
| what an observer of every operation costs, and 10^10 parameters without memory | `./dev bench lens_cost` |

`./dev check bench` runs all of them shortened (`./dev bench --smoke`) and keeps every check.

## Figures

`./dev bench page` measures the tables below and writes this page; `--only` selects tables, `--minutes`
bounds the time, `--list` shows estimates. Nothing below is typed by hand: `docs/benchmarks.json` holds the
rows, once per processor, each table with its commit (`+`: with local changes), date and load before it.
Ratios are medians of pairs whose order alternates, with the interval of that median (95 %).
"""

def render_gpu(rows):
    def of(question):
        return [row for row in rows if row["question"] == question]

    lines = grid(["part", "commit, date", "result", "seconds", "figure, or the reason"],
                 [[f"`{row['part']}`", f"`{row['commit']}`, {row['date']}", row["result"], f"{row['seconds']:.0f}",
                   row["figure"].replace("|", "/")] for row in of("part")])
    if of("step"):
        lines += ["", *grid(["step", "peer", "hanji", "peer's time over hanji's", "tokens/s"],
                            [[f"{row['model']}, {row['dtype']}, {row['tokens']} tokens", row["peer"],
                              seconds_text(row["first_seconds"]), ratio_text(row),
                              f"{row['tokens'] / row['first_seconds']:.3g}"] for row in of("step")])]
    if of("memory"):
        lines += ["", *grid(["model", "tensors on the GPU", "planned", "taken by the allocator"],
                            [[f"{row['model']}, {row['dtype']}", bytes_text(row["peak_bytes"]),
                              bytes_text(row["planned_bytes"]), bytes_text(row["reserved_bytes"])]
                             for row in of("memory")])]
    return lines


TABLES = [
    Table("step", "A training step against PyTorch's DDP",
          "hanji's own GPT, as `hanji train` runs it, against the same GPT in PyTorch with DDP over Gloo, fused AdamW and\n"
          "gradients that view the buckets; model `baby` (10.8 M parameters), batch 4 per rank, block 256, one thread per\n"
          "rank. \"highest\" is PyTorch as it comes, \"medium\" its `set_float32_matmul_precision`; with \"both medium\" hanji has\n"
          "`compute.products = medium`. The last column is the time of the matmuls and attention alone, at the rates that\n"
          "hanji measured, over that of the step.",
          [["step", "--pairs", "8", "--steps", "2", "--seeds", "2"]], 260, render_step, judge_step),
    Table("passes", "Passes over memory of a step",
          "What a step of the same model does between its products and attention, batch 4, one rank of one thread: each pass as\n"
          "often as the step calls it, forwards in turn and backwards in reverse, each on memory of its own. Bytes are those of\n"
          "the tensors that it reads and writes; the rate is that of an update of 128 MiB in place, in the same rounds. A pass may\n"
          "take less, as it finds in the caches what the one before it has left there.",
          [["passes"]], 20, render_passes),
    Table("tensor", "Tensor parallelism against PyTorch's DTensor",
          "The same GPT cut over 2 ranks of one thread, batch 4 for both together. hanji cuts everything that `mesh.tp` cuts;\n"
          "PyTorch cuts the MLPs, or the MLPs and attention (\"blocks\"), over Gloo, with fused AdamW and queries, keys and\n"
          "values in linears of their own. \"highest\" and \"medium\" are as above. Below, what the plan chooses to move for\n"
          "each MLP against what it does not choose.",
          [["tensor", "--pairs", "6", "--steps", "2", "--seeds", "2"]], 400, render_tensor, judge_tensor),
    Table("pipeline", "A pipeline against PyTorch's",
          "The same GPT on 2 ranks of one thread, a stage each, 16 samples in 4 micro-batches, against GPipe and 1F1B of\n"
          "`torch.distributed.pipelining` over Gloo with the same schedule. The bubble of both is 1/4 of the work if stages\n"
          "are equal. \"highest\" and \"medium\" are as above; the last column is that of the rank with most matmuls. Below,\n"
          "1F1B and zero-bubble beside the simulator, given the mean times of the run's own computations.",
          [["pipeline", "--pairs", "6", "--steps", "2", "--seeds", "2"]], 400, render_pipeline, judge_pipeline),
    Table("attention", "Causal attention in bf16",
          "Forward and backward on one thread, on the output of the projection. Rates count 7 products over the lower\n"
          "triangle. hanji's kernels of vectors compute bf16 in float32, those of tiles multiply bf16. PyTorch's is\n"
          "`scaled_dot_product_attention` on views. Beside them a bf16 `mm` of the same layer, its up-projection. An error is\n"
          "that of output or gradient against float64, over the largest entry.",
          [["attention"]], 40, render_attention, judge_attention),
    Table("linear", "What moves where ranks share a linear layer",
          "Forward and backward of one layer of float32 on 2 ranks of one thread, whose ends lie as each way leaves them. The\n"
          "first way is what `hanji explain tp` puts first, by costs fitted in the same minute; the others are timed against\n"
          "it. Each rank multiplies as much in every way, by matrices of other shapes, which prices do not see. As for\n"
          "collectives, a choice is good within 5 % of the fastest.",
          [["linear"]], 30, render_linear, judge_linear),
    Table("collectives", "Collectives in shared memory",
          "`hanji bench` for ranks of one host. The size of a routine with shares is that of all shares together.",
          [["all_reduce", "--pairs", "20"]], 300, render_collectives, judge_collectives),
    Table("peers", "`fully_shard` against PyTorch's `fully_shard`",
          "One GPT of plain torch::nn modules (`bench/plain_gpt.h`, `bench/peer_gpt.py`), `baby`, batch 4 per rank, 2 ranks of\n"
          "one thread: hanji's `fully_shard` with one unit per block against PyTorch's over Gloo. \"Tuned\" is PyTorch with\n"
          "`\"medium\"`, fused AdamW and no reshard after forward; with \"both medium\" hanji has the products that\n"
          "`compute.products = medium` would choose. Both sides start afresh several times.",
          [["fsdp", "--parts", "peers", "--pairs", "4", "--steps", "1", "--starts", "3"]], 140,
          render_pairs({}, "hanji's `fully_shard`"), judge_peers),
    Table("sharding", "Sharding and additions, for torch::nn modules",
          "The same GPT by the library's strategies, and by `data_parallel` with something added, each over plain\n"
          "`data_parallel`. Losses are those of 3 steps. What a communication hook keeps back comes later, so the first\n"
          "losses of `power_sgd_hook` and `top_k_hook` differ most.",
          [["fsdp", "--parts", "plain", "--pairs", "5", "--steps", "1"]], 210,
          render_pairs(PLAIN_NAMES, "`data_parallel`")),
    Table("train", "Strategies of `hanji train`",
          "hanji's own GPT by `parallel.data`, `baby`, batch 4 per rank, 2 ranks of one thread. `zero1`, `zero2` and `zero3`\n"
          "call `shard_optimizer`; none of them calls `fully_shard`. Both sides start afresh several times, for where a\n"
          "process gets its memory changes its steps.",
          [["fsdp", "--parts", "train", "--pairs", "4", "--steps", "1", "--starts", "2"]], 100,
          render_pairs(TRAIN_NAMES, "`ddp`"), judge_train),
    Table("memory", "Memory of the host",
          "An MLP of equal units, float32, AdamW; the sum of all ranks' proportional set sizes (PSS), sampled every 20 ms.\n"
          "The bound is 16 bytes per parameter, once on the host, and the gradients of two units on each rank. Until a module\n"
          "is wrapped every rank holds all of it; no rank ever does with `hanji::deferred`.",
          [["memory"]], 200, render_memory, judge_memory),
    Table("prediction", "Predicted times of collectives",
          "Costs are fitted; then calls of 8 routines, 64 KiB to 64 MiB, float32 and bfloat16, heap and private, are timed by\n"
          "each algorithm in the same minute. The error is that of the algorithm that the engine takes, including the\n"
          "synchronization in which it learns where tensors are stored. A pick is good within 5 % of the fastest algorithm.",
          [["prediction", "--pieces", "1"]], 60, render_prediction, judge_prediction),
    Table("hosts", "An all_reduce between hosts",
          "Hosts are network namespaces on one machine, joined with a rate limit; the peer is Gloo's own ring through the same\n"
          "ranks, host by host. The wire's time is that of 2N(h-1)/h bytes in full frames; bytes are counted at a host's\n"
          "interface.",
          [["hosts", "--pairs", "5"], ["hosts", "--pairs", "5", "--hosts", "3"]], 40, render_hosts, judge_hosts),
    Table("first_step", "Start to the end of step 1",
          "`nano`, 2 ranks, fresh processes: `hanji train` against torchrun with the same model.",
          [["first_step", "--pairs", "5"]], 30, render_first_step),
    Table("loader", "Loading images and tokens",
          "Random resized crop to 224, flip, normalise, batches of 64 as float32, from one file in the page cache: hanji's\n"
          "`BetonImages` and `Prefetcher`, FFCV, PyTorch's DataLoader with torchvision, torchcodec or Pillow, and libjpeg-turbo\n"
          "decoding whole images in one thread, which resizes nothing. CIFAR's stages are flip, translate, cutout, normalise.\n"
          "Images are drawn, of about as many bytes as photos. FFCV resizes by areas, hanji and Pillow by an antialiased triangle.\n"
          "Token samples are inputs and targets as int64, from a file of 2-byte ids; the copies are of as many bytes of int64, from the caches\n"
          "or from random places of a file of int64. `HANJI_FFCV_PYTHON` and `HANJI_TORCH_PYTHON` name interpreters with FFCV\n"
          "(1.0.2 of PyPI, built beside Debian's libopencv-dev and libturbojpeg0-dev), and with torchvision and torchcodec.",
          [["loader", "--rounds", "7"]], 400, render_loader, judge_loader),
    Table("overlap", "What communication costs a step",
          "A step of 2 connected ranks over that of 2 unconnected runs on the same cores, `baby`.",
          [["overlap", "--pairs", "8"]], 70, render_overlap),
    Table("threads", "Threads that wait",
          "One rank with as many threads as cores, alone and beside as many processes that compute: steps of threads that\n"
          "sleep while they wait, and of threads that spin as OpenMP's do by themselves; what the launcher chooses there; and\n"
          "as many ranks of one thread. `small` is a GPT of 4 layers, 128 wide, on 4 samples of 64 tokens, with short\n"
          "operations between which threads wait often. Operations of `baby` are long: beside others a step takes twice its\n"
          "time at the least, as half of each core is theirs. Losses and states are equal in all bits.",
          [["threads"]], 120, render_threads, judge_threads),
    Table("stable", "What stable bits cost",
          "A step of `train.bits = stable` over one of `train.bits = run`, `baby`, 2 ranks of 6 samples.",
          [["stable", "--pairs", "5"]], 110, render_stable, judge_stable),
    Table("server", "A parameter server",
          "64 MiB of float32, plain SGD; the peer is an all_reduce in the heap with every rank's own update, after the copy of\n"
          "gradients into place. Times are the median with the least and the most; with more ranks than cores they are those\n"
          "of a model. On one host messages of the server are copied into staging, where the all_reduce reads in place.",
          [["server", "--pairs", "9"]], 20, render_server),
    Table("check_cost", "Comparison of calls",
          "An all_reduce of 2 ranks with the comparison of what the ranks called, over one by the same engine without it.",
          [["check_cost"]], 15, render_check_cost, judge_check_cost),
    Table("prepared_calls", "Prepared calls",
          "Calls of `all_reduce` in the heap that `comm::prepare` prepared, over calls of the plain function: of one size, or\n"
          "of four alternating sizes. One rank alone shows what the caller's own work costs.",
          [["prepared_calls"]], 30, render_prepared_calls),
    Table("context", "Ranks that share out the tokens of samples",
          "A step of the model of `step` on samples of 256, 1024 and 4096 tokens: Ulysses beside a ring, and both beside one\n"
          "rank that has the whole sample. Float64 losses of all three are those of one rank to 1e-9.",
          [["context"]], 660, render_context),
    Table("axial", "Triangles that ranks share out",
          "Two triangle updates of float32, 128 channels, forward and backward, by hanji's ways, by the classic gather schedule\n"
          "(whose gathers have an all_reduce in backward) and by Cannon's algorithm on a square of ranks, with the same\n"
          "kernels; outputs and gradients are those of one rank to 1e-12. Bytes that all ranks send, counted on ranks that are\n"
          "not there; the peak of everything that a rank allocates; steps on 2 ranks, beside the classic one's there and\n"
          "beside hanji's on one rank alone.",
          [["axial"]], 600, render_axial, judge_axial),
    Table("lens", "Observers, and modules without memory",
          "Steps of `baby` on 64 tokens with an empty observer of every operation over steps without; then what it takes to\n"
          "build modules by `hanji::deferred`.",
          [["lens_cost"]], 60, render_lens, judge_lens),
    Table("offload", "Offload and recomputation",
          "Six blocks of torch::nn's modules (width 384, 256 tokens), one thread. The last two rows are an update of AdamW\n"
          "alone, and steps of `fully_shard` by one rank that gathers its units; their limit is the rate of the disk.",
          [["offload"]], 90, render_offload),
    Table("gpu", "One GPU",
          "What `./dev gpu` has run on a machine with one GPU: its parts, whose losses are held to those of the CPU; a step\n"
          "beside the same model in PyTorch with the fused AdamW, as it comes and by `torch.compile`; tensors on the GPU\n"
          "beside the plan's. [GPUs](gpus.md#seen-on-a-gpu) says what each part shows.",
          [["gpu"]], 480, render_gpu, door="gpu"),
    Table("c10d", "Python's own DDP and FSDP2",
          "Steps of `baby` and plain all_reduces under Python with the process group \"hanji\" and with \"gloo\"\n"
          "(`./dev python` installs it).",
          [["c10d", "--pairs", "5"]], 150, render_c10d),
]
