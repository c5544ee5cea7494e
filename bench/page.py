"""Measures the tables of docs/benchmarks.md and writes the page; no figure there is typed by hand.

    ./dev bench page                          all tables, in the order of --list
    ./dev bench page --only step fsdp         these; the others keep what docs/benchmarks.json has
    ./dev bench page --minutes 20             as many as their estimates allow, those measured longest ago first
    ./dev bench page --list                   tables with estimates, and when each was measured
    ./dev bench page --render                 writes the page from docs/benchmarks.json again

docs/benchmarks.json keeps the rows of every table, once per processor, with commit, date and command.
--smoke runs the same programs shortened, which `./dev check` does, and writes to build/bench instead of docs/.
"""
import argparse
import json
import pathlib
import shlex
import subprocess
import sys
import time

import machine
from page_tables import INTRODUCTION, TABLES

ROOT = machine.ROOT
BINARIES = ROOT / "build/dev/bin/bench"
MEASURED = [table for table in TABLES if table.door == "bench"]


class Skipped(Exception):
    """What a table needs is not here."""


def load(path):
    return json.loads(path.read_text()) if path.exists() else {"tables": {}}


def shown(command):
    return "./dev " + shlex.join(command if command[0] == "gpu" else ["bench", *command])


def shown_all(commands):
    return " and ".join(f"`{shown(command)}`" for command in commands)


def provenance_text(entry):
    p = entry["processor"]
    instructions = ", ".join(p["instructions"]) or "none of AVX2 and above"
    device = entry.get("device")
    gpu = f"{device['name']}, driver {device['driver']}, beside " if device else ""
    return (f"{gpu}{p['model']} (family-model-stepping {p['family']}), {p['cores']} cores, {instructions}; commit "
            f"`{entry['commit']}`, {entry['date']}, PyTorch {entry['torch']}, load {entry['load_before']} before; "
            f"{shown_all(entry['commands'])}, {entry['took_seconds']} s{', smoke only' * entry['smoke']}:")


def render_table(table, entries):
    lines = [f"### {table.title}", "", table.prose, ""]
    if not entries:
        way = (f"`./dev bench page --only {table.name}`, which runs {shown_all(table.commands)}" if table.door == "bench"
               else f"{shown_all(table.commands)} on such a machine, then `tools/gpu_parts.py --merge`")
        return "\n".join([*lines, f"Not measured yet: {way}.", ""])
    for key in sorted(entries):
        entry = entries[key]
        lines += [provenance_text(entry), "", *table.render(entry["rows"]), ""]
        verdicts = table.judge(entry["rows"])
        if verdicts:
            lines += [*verdicts, ""]
    return "\n".join(lines)


def render(results):
    parts = [INTRODUCTION] + [render_table(table, results["tables"].get(table.name, {})) for table in TABLES]
    return "\n".join(parts)


def invocation(command, smoke):
    script = ROOT / "bench" / f"{command[0]}.py"
    program = [sys.executable, str(script)] if script.exists() else [str(BINARIES / command[0])]
    speaks_json = script.exists() or command[0] in ("server", "passes")
    return [*program, *command[1:], *(["--json"] if speaks_json else []), *(["--smoke"] if smoke else [])]


def commands_of(table, a):
    """The table's commands with the number of pairs that was asked for."""
    for command in table.commands:
        at = command.index("--pairs") + 1 if a.pairs and "--pairs" in command else None
        yield [*command[:at], str(a.pairs), *command[at + 1:]] if at else list(command)


def measure(table, commands, a):
    """The rows of a table; throws what went wrong, or Skipped."""
    rows = []
    for command in commands:
        done = subprocess.run(invocation(command, a.smoke), cwd=ROOT, text=True, stdout=subprocess.PIPE,
                              timeout=max(180, 5 * table.seconds))
        if done.returncode != 0:
            raise RuntimeError(f"{shown(command)} ended with code {done.returncode}")
        rows += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for row in rows:
        if "skipped" in row:
            raise Skipped(row["skipped"])
    if not rows:
        raise RuntimeError("it printed no row; run it by itself to see why")
    table.render(rows), table.judge(rows)  # rows that the page cannot show are refused here
    return rows


def chosen(a, results, here):
    """The tables to measure: those asked for, of the oldest as many as the time allows."""
    tables = [table for table in MEASURED if not a.only or table.name in a.only]
    if not a.minutes:
        return tables
    date = {t.name: results["tables"].get(t.name, {}).get(here, {}).get("date", "") for t in tables}
    left, taken = a.minutes * 60, []
    for table in sorted(tables, key=lambda t: date[t.name]):
        if table.seconds <= left:
            left -= table.seconds
            taken.append(table)
    return taken


def list_tables(results, here):
    for table in MEASURED:
        entry = results["tables"].get(table.name, {}).get(here)
        print(f"{table.name:12} about {table.seconds:4} s  "
              + (f"{entry['date']} at {entry['commit']}" if entry else "not measured here yet"))
    print(f"{'all':12} about {sum(table.seconds for table in MEASURED):4} s")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[table.name for table in MEASURED], metavar="TABLE")
    parser.add_argument("--minutes", type=float, help="leaves out what its estimate does not allow")
    parser.add_argument("--pairs", type=int, help="instead of each table's own number")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    return parser.parse_args()


def main():
    a = arguments()
    folder = ROOT / "build/bench" if a.smoke else ROOT / "docs"
    folder.mkdir(parents=True, exist_ok=True)
    store, page = folder / "benchmarks.json", folder / "benchmarks.md"
    results, here, failed, skipped = load(store), machine.key_of(machine.processor()), [], []
    if a.list:
        return list_tables(results, here)
    for table in [] if a.render else chosen(a, results, here):
        print(f"{table.name}: about {table.seconds} s", file=sys.stderr, flush=True)
        begin = time.monotonic()
        entry = {**machine.provenance(), "commands": list(commands_of(table, a)), "smoke": a.smoke}
        try:
            entry["rows"] = measure(table, entry["commands"], a)
        except Skipped as why:
            skipped.append(f"{table.name}: skipped: {why}")
            continue
        except (RuntimeError, KeyError, TypeError, ValueError, subprocess.TimeoutExpired) as error:
            failed.append(f"{table.name}: {type(error).__name__}: {error}")
            continue
        entry["took_seconds"] = round(time.monotonic() - begin)
        results["tables"].setdefault(table.name, {})[here] = entry
        store.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        page.write_text(render(results))
    page.write_text(render(results))
    print(f"wrote {page.relative_to(ROOT)}", *skipped, *failed, sep="\n", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
