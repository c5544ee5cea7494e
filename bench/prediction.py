"""How far are predicted times of collectives from measured ones, and is the fastest one picked?

Costs are fitted (`hanji bench --fit`'s way), then every candidate of a grid of routine, size, ranks,
dtype and placement is timed in the same minute; sizes are not those of the fit.
"""
import argparse
import collections
import json
import pathlib
import statistics
import subprocess

from model import ROOT


def cases(ranks, most_bytes, seconds):
    command = [str(ROOT / "build/dev/bin/bench/prediction"), str(ranks), str(most_bytes), str(seconds)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def judge(case):
    """Error of the pick's prediction, with and without corrections, and its distance to the best."""
    pick = min(case["algorithms"], key=lambda one: one["predicted_seconds"])
    best = min(one["seconds"] for one in case["algorithms"])
    return {"error": abs(pick["predicted_seconds"] / pick["seconds"] - 1),
            "terms": abs(pick["by_terms_seconds"] / pick["seconds"] - 1),
            "lost": pick["seconds"] / best - 1, "case": case, "pick": pick["algorithm"]}


def line(name, results):
    errors = sorted(one["error"] for one in results)
    good = sum(one["lost"] <= 0.05 for one in results)
    return (f"{name:22} {len(results):4} cases  median error {100 * statistics.median(errors):5.1f} %"
            f"  by terms alone {100 * statistics.median(one['terms'] for one in results):5.1f} %"
            f"  90th percentile {100 * errors[int(0.9 * len(errors))]:5.1f} %"
            f"  within 5 % of the best {100 * good / len(results):5.1f} %")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--seconds", type=float, default=7)
    parser.add_argument("--smoke", action="store_true")
    a = parser.parse_args()
    most_bytes = 256 << 10 if a.smoke else 64 << 20
    if a.smoke:
        a.ranks, a.seconds = [2], 0
    results = [judge(case) for ranks in a.ranks for case in cases(ranks, most_bytes, a.seconds)]
    for key in ("ranks", "dtype", "placement", "routine", "bytes"):
        groups = collections.defaultdict(list)
        for one in results:
            groups[one["case"][key]].append(one)
        for value, group in sorted(groups.items()):
            print(line(f"{key} {value}", group))
    print(line("all", results))
    for one in sorted(results, key=lambda one: -one["lost"])[:5]:
        case = one["case"]
        print(f"  worst pick: {case['routine']} {case['bytes']} B, {case['ranks']} ranks, "
              f"{case['dtype']}, {case['placement']}: {one['pick']}, {100 * one['lost']:.0f} % slower")


if __name__ == "__main__":
    main()
