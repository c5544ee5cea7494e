"""Keeps two sets of ranks alive and lets them work in turn, so that both meet the same machine.

A rank is any program that reads lines from stdin and answers each with one line of JSON:
    {"steps": 5}    ->  {"seconds": [...], "losses": [...]}
"""
import json
import math
import os
import socket
import statistics
import subprocess


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Ranks:
    """One job: the same command once per rank, each rank pinned to a core of its own, but those of GPUs (`pinned` False)."""

    def __init__(self, name, command, ranks, cores=None, environment=None, pinned=True):
        self.name = name
        port = str(free_port())
        self.processes = []
        for rank in range(ranks):
            variables = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank),
                         "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                         "TORCHELASTIC_RUN_ID": f"bench-{os.getpid()}-{port}",
                         "TORCHELASTIC_RESTART_COUNT": "0", "OMP_NUM_THREADS": "1",
                         **(environment or {})}
            cores = cores or sorted(os.sched_getaffinity(0))
            own = {cores[rank % os.cpu_count()]} if pinned else set(cores)
            self.processes.append(subprocess.Popen(
                command, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                preexec_fn=lambda own=own: os.sched_setaffinity(0, own)))

    def ask(self, **request):
        """Sends one request to all ranks; returns their answers by rank."""
        self.send(**request)
        return self.receive()

    def send(self, **request):
        for process in self.processes:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()

    def receive(self):
        lines = [process.stdout.readline() for process in self.processes]
        if not all(lines):
            for process in self.processes:
                process.stdin.close()
            codes = [process.wait() for process in self.processes]
            raise RuntimeError(f"{self.name}: ranks ended with codes {codes}")
        return [json.loads(line) for line in lines]

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait(timeout=60)


def slowest(answers):
    """Seconds per step of the slowest rank."""
    return [max(step) for step in zip(*(answer["seconds"] for answer in answers))]


def interval(values, confidence=0.95):
    """Two of the values, between which their median lies with at least that confidence."""
    values, tail, outside = sorted(values), 0.0, 0
    while outside < (len(values) - 1) // 2:
        tail += math.comb(len(values), outside) / 2 ** len(values)
        if tail > (1 - confidence) / 2:
            break
        outside += 1
    outside = max(outside - 1, 0)
    return values[outside], values[-1 - outside]


class Comparison:
    """Medians of blocks of steps, in pairs; the order within a pair alternates."""

    def __init__(self, first=None, second=None):
        self.ratios, self.first, self.second = [], [], []
        self._sides = (first, second)

    def between(self, first, second):
        """Goes on with others in their places, such as the same sides started afresh."""
        self._sides = (first, second)
        return self

    def run(self, pairs, steps):
        for pair in range(pairs):
            medians = {}
            for side in (0, 1) if pair % 2 == 0 else (1, 0):
                medians[side] = statistics.median(self._sides[side](steps))
            self.add(medians[0], medians[1])
        return self

    def add(self, first, second):
        """Seconds of a pair that was timed elsewhere."""
        self.first.append(first)
        self.second.append(second)
        self.ratios.append(second / first)

    def row(self):
        """Seconds of both sides and the ratio of the second to the first, for Rows.add()."""
        low, high = interval(self.ratios)
        return {"first_seconds": statistics.median(self.first), "second_seconds": statistics.median(self.second),
                "ratio": statistics.median(self.ratios), "low": low, "high": high, "pairs": len(self.ratios)}

    def __str__(self):
        low, high = interval(self.ratios)
        return (f"{statistics.median(self.first) * 1e3:8.1f} ms against "
                f"{statistics.median(self.second) * 1e3:8.1f} ms: "
                f"{statistics.median(self.ratios):.3f}x  ({low:.3f} to {high:.3f}, {len(self.ratios)} pairs)")
