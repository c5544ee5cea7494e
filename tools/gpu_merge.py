"""Rows of a run of ./dev gpu go into docs/benchmarks.json, what it has shown into docs/gpus.md, for gpu_parts.py."""
import json
import re
import sys

import machine
import page
from gpu_part_list import NEVER, PARTS

STORE, GPUS = machine.ROOT / "docs/benchmarks.json", machine.ROOT / "docs/gpus.md"
BEGIN, END = "<!-- made by tools/gpu_parts.py --render -->\n", "<!-- end -->\n"


def key_of(results):
    return f"{results['device']['name']}, {machine.key_of(results['processor'])}"


def mistakes_of(results, commit):
    device = results["device"]
    if device["kind"] != "cuda":
        yield f"these rows are of --device {device['kind']}: only those of a GPU are merged"
    elif not device["name"]:
        yield "nvidia-smi named no GPU where these rows were made, so none gave them"
    if results["commit"] == "unknown" and not commit:
        yield "the machine had no git: give --commit, the tree's that ran there"


def entry_of(results, before, commit):
    """The table's entry of this machine; rows of parts that did not run now stay as they were."""
    about = {key: results[key] for key in ("date", "processor", "torch", "load_before", "device")}
    about["commit"] = commit or results["commit"]
    ran = [one for one in results["parts"] if one["result"] in ("ok", "failed")]
    names = {one["part"] for one in ran}
    rows = [row for row in before.get("rows", []) if row["part"] not in names]
    for one in ran:
        of = {"part": one["part"], "date": about["date"], "commit": about["commit"]}
        rows.append({**of, "question": "part", "result": one["result"], "seconds": one["seconds"], "figure": one["figure"]})
        # Steps are timed after their results were verified, and stay where a later one met the limit.
        rows += [{**of, **row} for row in one["rows"] if one["result"] == "ok" or row["question"] == "step"]
    took = round(sum(one["seconds"] for one in ran))
    return {**about, "commands": [["gpu"]], "smoke": False, "took_seconds": took, "rows": rows}


def seen_on(part, entries):
    """Where a part was run: newest first, at most two."""
    found = [(row["date"], entry["device"]["name"], row) for entry in entries.values() for row in entry["rows"]
             if row["question"] == "part" and row["part"] == part.name]
    said = [f"{'' if row['result'] == 'ok' else 'failed on '}{name}, {date}, `{row['commit']}`"
            for date, name, row in sorted(found, key=lambda one: one[0], reverse=True)[:2]]
    return "; ".join(said) or "not yet"


def seen_table(results):
    entries = results["tables"].get("gpu", {})
    lines = ["| part | what it shows | seen on a GPU |", "|---|---|---|"]
    lines += [f"| `{part.name}` | {part.shows} | {seen_on(part, entries)} |" for part in PARTS]
    lines += [f"| none | {what} | no part shows it |" for what in NEVER]
    return "\n".join(lines) + "\n"


def with_table(text, results):
    before, rest = text.split(BEGIN)
    return before + BEGIN + seen_table(results) + END + rest.split(END, 1)[1]


def render():
    results = page.load(STORE)
    GPUS.write_text(with_table(GPUS.read_text(), results))
    return 0


def merge(path, commit):
    results, store = json.loads(path.read_text()), page.load(STORE)
    mistakes = list(mistakes_of(results, commit))
    if mistakes:
        print(*mistakes, sep="\n", file=sys.stderr)
        return 2
    table = store["tables"].setdefault("gpu", {})
    key = re.sub(r"\s+", " ", key_of(results))
    table[key] = entry_of(results, table.get(key, {}), commit)
    text = page.render(store)  # before a file changes: rows that the page cannot show are refused here
    STORE.write_text(json.dumps(store, indent=1, sort_keys=True) + "\n")
    (machine.ROOT / "docs/benchmarks.md").write_text(text)
    return render()
