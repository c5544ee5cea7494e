"""Hosts as network namespaces on one bridge, each joined to it by a veth pair with a rate limit.

They share one kernel, so they show what travels between hosts, not what a host cannot see.
"""
import os
import shutil
import subprocess


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


class Network:
    """`hosts` namespaces; host i has 10.77.0.(i + 1) and fd77::(i + 1) on the interface `eth`."""

    def __init__(self, hosts, rate="1gbit", latency="50ms"):
        self.name = f"hj{os.getpid() % 100000}"
        self.hosts = [f"{self.name}-{host}" for host in range(hosts)]
        self.rate, self.latency = rate, latency

    @staticmethod
    def missing():
        """Why there can be no namespaces here; empty if there can."""
        if os.geteuid() != 0:
            return "network namespaces need root"
        for tool in ("ip", "tc"):
            if shutil.which(tool) is None:
                return f"there is no `{tool}` (Debian: iproute2)"
        try:
            with Network(1):
                return ""
        except OSError as error:
            return str(error)

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def address6(self, host):
        return f"fd77::{host + 1:x}"

    def command(self, host, *command):
        return ["ip", "netns", "exec", self.hosts[host], *map(str, command)]

    def limit(self, host, rate):
        """What the host can send from now on."""
        run(*self.command(host, "tc", "qdisc", "replace", "dev", "eth", "root", "tbf", "rate", rate,
                          "burst", "256kb", "latency", self.latency))

    def cut(self, host):
        """From now on nothing reaches the host or leaves it; neither side's interface goes down."""
        run("ip", "-n", f"{self.name}-hub", "link", "set", f"port{host}", "nomaster")

    def join(self, host):
        run("ip", "-n", f"{self.name}-hub", "link", "set", f"port{host}", "master", "bridge")

    def __enter__(self):
        try:
            self._make()
        except OSError:
            self.__exit__()
            raise
        return self

    def _make(self):
        hub = f"{self.name}-hub"
        run("ip", "netns", "add", hub)
        run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", hub, "link", "set", "bridge", "up")
        for host, name in enumerate(self.hosts):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "add", "eth", "type", "veth", "peer", "name",
                f"port{host}", "netns", hub)
            run("ip", "-n", hub, "link", "set", f"port{host}", "master", "bridge", "up")
            run("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth")
            run("ip", "-n", name, "addr", "add", f"{self.address6(host)}/64", "dev", "eth", "nodad")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "eth", "up")
            if self.rate:
                self.limit(host, self.rate)

    def __exit__(self, *_):
        for name in [*self.hosts, f"{self.name}-hub"]:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def sent_bytes(self, host):
        """What the kernel has sent on the host's interface so far."""
        path = "/sys/class/net/eth/statistics/tx_bytes"
        done = subprocess.run(self.command(host, "cat", path), capture_output=True, check=True)
        return int(done.stdout)


class Run:
    """`hanji run` on every host of a network: ranks[h] copies of `command` on host h, with logs."""

    def __init__(self, hanji, network, ranks, folder, command, six=False, environment=None, options=()):
        token = folder / "token"
        if not token.exists():
            token.touch(mode=0o600)
            token.write_text(os.urandom(32).hex())
        port = 20000 + os.getpid() % 10000
        server = f"[{network.address6(0)}]:{port}" if six else f"{network.address(0)}:{port}"
        self.launchers = [
            subprocess.Popen(
                network.command(host, hanji, "run", "--nnodes", len(ranks), "--node-rank", host,
                                "--rendezvous", server, "--token-file", token, "--join", 60,
                                "--logs", folder / "logs", *options, "-n", number, *command),
                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})})
            for host, number in enumerate(ranks)]
        self.logs = folder / "logs"

    def wait(self, timeout):
        """(exit code, output) by host."""
        try:
            texts = [launcher.communicate(timeout=timeout)[0] for launcher in self.launchers]
            return [(launcher.returncode, text) for launcher, text in zip(self.launchers, texts)]
        finally:
            self.kill()

    def kill(self):
        for launcher in self.launchers:
            if launcher.poll() is None:
                launcher.kill()
            launcher.communicate()

    def log(self, rank):
        path = self.logs / f"rank.{rank}"
        return path.read_text() if path.exists() else ""
