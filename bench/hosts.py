"""What does the hierarchical all-reduce gain between hosts, and what is left of the wire?

2 hosts x 2 ranks as network namespaces joined at 1 Gbit/s; 64 MiB of float32, interleaved with Gloo's
own ring over the same 4 ranks, host by host. Needs root, iproute2 and a build with Gloo.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

from rows import Rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from network import Network, Run  # noqa: E402

BIN = pathlib.Path(os.environ.get("HANJI_BIN", ROOT / "build" / "dev" / "bin"))
# Of a frame of 1514 bytes that the limit counts, 1448 are the message's.
PAYLOAD = 1448 / 1514


def measure(network, a):
    with tempfile.TemporaryDirectory(prefix="hanji-hosts-") as folder:
        run = Run(BIN / "hanji", network, [a.ranks] * a.hosts, pathlib.Path(folder),
                  [BIN / "bench" / "hosts_rank", "eth", a.bytes, a.pairs])
        done = run.wait(a.timeout)
        if any(code for code, _ in done):
            raise SystemExit("\n".join(f"code {code}: {text}" for code, text in done))
        return [json.loads(line) for line in run.log(0).splitlines() if line.startswith("{")]


def report(calls, a, rows):
    of = {name: [call for call in calls if call["engine"] == name]
          for name in ("hierarchical", "ring")}
    if any(call["wrong"] for call in calls):
        raise SystemExit("wrong sums")
    wire = 2 * a.bytes * (a.hosts - 1) / a.hosts
    limit = wire / PAYLOAD / (a.gigabits * 1e9 / 8)
    rows.say(f"{a.hosts} hosts x {a.ranks} ranks, {a.gigabits} Gbit/s, {a.bytes >> 20} MiB of float32, "
             f"{a.pairs} interleaved pairs")
    sent = {name: statistics.median(call["interface"] for call in list_of) for name, list_of in of.items()}
    for name, list_of in of.items():
        seconds = [call["seconds"] for call in list_of]
        rows.say(f"  {name:12} {statistics.median(seconds):.3f} s ({min(seconds):.3f} to "
                 f"{max(seconds):.3f}), a host's interface sent {sent[name] / 1e6:.1f} MB")
    ratios = [r["seconds"] / h["seconds"] for h, r in zip(of["hierarchical"], of["ring"])]
    median = statistics.median(call["seconds"] for call in of["hierarchical"])
    rows.add(f"  ring / hierarchical {statistics.median(ratios):.2f}x ({min(ratios):.2f} to "
             f"{max(ratios):.2f}); the wire's own time for {wire / 1e6:.1f} MB is {limit:.3f} s: "
             f"{100 * (median / limit - 1):.1f} % above it",
             question="hosts", hosts=a.hosts, ranks_per_host=a.ranks, bytes=a.bytes, gigabits=a.gigabits,
             seconds=median, ratio=statistics.median(ratios), low=min(ratios), high=max(ratios),
             pairs=len(ratios), sent_bytes=sent["hierarchical"], promised_bytes=wire,
             ring_sent_bytes=sent["ring"], above_wire=median / limit - 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="per host")
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--gigabits", type=float, default=1)
    parser.add_argument("--timeout", type=int, default=300)
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    if a.smoke:
        a.bytes, a.pairs = 1 << 20, 1
    missing = Network.missing()
    if missing:
        rows.skip(missing)
        return
    with Network(a.hosts, rate=f"{int(a.gigabits * 1000)}mbit") as network:
        report(measure(network, a), a, rows)


if __name__ == "__main__":
    main()
