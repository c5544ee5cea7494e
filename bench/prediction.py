"""How far are predicted times of collectives from measured ones, and is the fastest one picked?

Costs are fitted (`hanji bench --fit`'s way), then every candidate of a grid of routine, size, ranks,
dtype and placement is timed in the same minute; most sizes are not those of the fit. A piece is one
fit and its grid for one number of ranks; pieces are repeated for the spread.

    ./dev bench prediction --ranks 2 --pieces 2
"""
import argparse
import collections
import json
import pathlib
import statistics
import subprocess

from model import ROOT
from rows import Rows

KEYS = ("ranks", "dtype", "placement", "routine", "bytes")
BARS = {"median_error": 0.10, "good_picks": 0.95}


def cases(ranks, most_bytes, seconds):
    command = [str(ROOT / "build/dev/bin/bench/prediction"), str(ranks), str(most_bytes), str(seconds)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def judge(case):
    """Errors of all candidates' predictions and of the pick's, and the pick's distance to the best."""
    algorithms = case["algorithms"]
    pick = case["pick"]
    best = min(algorithms, key=lambda one: one["seconds"])
    return {"errors": [abs(one["predicted_seconds"] / one["seconds"] - 1) for one in algorithms],
            "terms": [abs(one["by_terms_seconds"] / one["seconds"] - 1) for one in algorithms],
            "error": abs(pick["predicted_seconds"] / pick["seconds"] - 1),
            "lost": pick["seconds"] / best["seconds"] - 1,
            "case": case, "pick": pick["algorithm"], "best": best["algorithm"]}


def figures(results):
    """Of the picks, of every candidate, of the terms alone; and how often the pick is as good as any."""
    errors = sorted(one["error"] for one in results)
    return {"cases": len(results),
            "median_error": statistics.median(errors),
            "p90_error": errors[int(0.9 * len(errors))],
            "median_error_of_all": statistics.median(e for one in results for e in one["errors"]),
            "median_error_by_terms": statistics.median(e for one in results for e in one["terms"]),
            "good_picks": sum(one["lost"] <= 0.05 for one in results) / len(results)}


def line(name, f):
    return (f"{name:24} {f['cases']:4} cases  median error {100 * f['median_error']:5.1f} %"
            f"  p90 {100 * f['p90_error']:5.1f} %  all candidates {100 * f['median_error_of_all']:5.1f} %"
            f"  by terms alone {100 * f['median_error_by_terms']:5.1f} %"
            f"  within 5 % of the best {100 * f['good_picks']:5.1f} %")


def groups(results, key):
    found = collections.defaultdict(list)
    for one in results:
        found[one["case"][key]].append(one)
    return {str(value): figures(group) for value, group in sorted(found.items())}


def spread(pieces, name):
    values = sorted(figures(results)[name] for _, results in pieces)
    return {"median": statistics.median(values), "smallest": values[0], "largest": values[-1]}


def summary(pieces):
    results = [one for _, some in pieces for one in some]
    worst = sorted(results, key=lambda one: -one["lost"])[:8]
    return {"all": figures(results), "bars": BARS,
            "over_pieces": {name: spread(pieces, name) for name in BARS},
            "pieces": [{"ranks": ranks, **figures(some)} for ranks, some in pieces],
            **{f"by_{key}": groups(results, key) for key in KEYS},
            "worst_picks": [{**{key: one["case"][key] for key in KEYS}, "pick": one["pick"],
                             "best": one["best"], "lost": one["lost"]} for one in worst]}


def text(value):
    lines = [line(f"{key} {name}", one) for key in KEYS for name, one in value[f"by_{key}"].items()]
    lines += [line(f"piece {i}, {one['ranks']} ranks", one) for i, one in enumerate(value["pieces"])]
    lines.append(line("all", value["all"]))
    for name, spread_of in value["over_pieces"].items():
        kept = value["all"][name] <= BARS[name] if name == "median_error" else value["all"][name] >= BARS[name]
        lines.append(f"  {name}: {100 * value['all'][name]:.1f} % (pieces {100 * spread_of['smallest']:.1f} to "
                     f"{100 * spread_of['largest']:.1f}), bar {100 * BARS[name]:.0f} %: "
                     f"{'kept' if kept else 'missed'}")
    for one in value["worst_picks"]:
        lines.append(f"  worst pick: {one['routine']} {one['bytes']} B, {one['ranks']} ranks, {one['dtype']}, "
                     f"{one['placement']}: {one['pick']}, {100 * one['lost']:.0f} % slower than {one['best']}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--pieces", type=int, default=2, help="of each number of ranks")
    parser.add_argument("--seconds", type=float, default=7, help="of a fit, and of each placement's grid")
    parser.add_argument("--raw", type=pathlib.Path, help="writes every case there, or reads them with --again")
    parser.add_argument("--again", action="store_true", help="judges the cases of --raw, measures nothing")
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    most_bytes = 256 << 10 if a.smoke else 64 << 20
    if a.smoke:
        a.ranks, a.pieces, a.seconds = [2], 1, 0
    if a.again:
        measured = json.loads(a.raw.read_text())
    else:
        measured = [[ranks, cases(ranks, most_bytes, a.seconds)]
                    for _ in range(a.pieces) for ranks in a.ranks]
        if a.raw:
            a.raw.write_text(json.dumps(measured))
    value = summary([(ranks, [judge(case) for case in some]) for ranks, some in measured])
    rows.add(text(value), question="prediction", **value)


if __name__ == "__main__":
    main()
