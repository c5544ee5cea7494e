"""A Slurm of one host and of this process alone: its own network, host name and process ids."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
INSIDE = "HANJI_TEST_INSIDE_A_HOST"
HOST, ADDRESS = "hanji0", "10.77.1.1"
CONFIGURATION = """
ClusterName=hanji
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort=17817
SlurmdPort=17818
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
CommunicationParameters=NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SelectType=select/cons_tres
MpiDefault=none
SchedulerType=sched/builtin
KillWait=5
ReturnToService=2
NodeName={host} CPUs=4 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=5 State=UP
"""


def enter_a_host():
    """Starts this program anew in namespaces of its own, where they are allowed; all that it starts
    there ends with it. Returns inside, and where they are not."""
    if os.environ.get(INSIDE):
        return _make_network()
    unshare = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() == 0 and shutil.which("unshare") and shutil.which("ip"):
        if subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
            os.environ[INSIDE] = "1"
            os.execvp("unshare", [*unshare, sys.executable, "-B", *sys.argv])


def _make_network():
    # Slurm and Open MPI find neither names nor interfaces where a host has loopback alone.
    for command in ("link set lo up", "link add eth type veth peer name far",
                    f"address add {ADDRESS}/24 dev eth", "link set eth up", "link set far up"):
        subprocess.run(["ip", *command.split()], check=True)
    socket.sethostname(HOST)
    with tempfile.NamedTemporaryFile("w") as hosts:
        hosts.write(f"127.0.0.1 localhost\n{ADDRESS} {HOST}\n")
        hosts.flush()
        subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=True)


class Slurm:
    """munged, slurmctld and slurmd on this host's own network, from start() to stop()."""

    def __init__(self):
        self.daemons = []

    @staticmethod
    def missing():
        """Why there can be no Slurm here; empty if there can."""
        absent = [name for name in PROGRAMS if shutil.which(name, path=Slurm.path()) is None]
        if absent:
            return f"no {', '.join(absent)} (Debian: slurmctld slurmd slurm-client munge)"
        if not os.environ.get(INSIDE):
            return "a Slurm of one's own needs root, iproute2 and namespaces"
        return ""

    @staticmethod
    def path():
        return f"{os.environ['PATH']}:/usr/sbin:/sbin"

    def start(self):
        self._folder = tempfile.TemporaryDirectory(prefix="hanji-slurm-")
        self.folder = pathlib.Path(self._folder.name)
        self.folder.chmod(0o755)  # munged refuses a socket below a folder of less
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(host=HOST, folder=self.folder))
        munge = self.folder / "munge"
        self._start("munged", "--foreground", f"--key-file={key}", f"--socket={munge}/socket",
                    f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        self._wait("munged", (munge / "socket").exists)
        self._start("slurmctld", "-D")
        self._start("slurmd", "-D", "-N", HOST)
        self._wait("slurmd", lambda: self.run("sinfo", "-h", "-o", "%T").stdout.strip() == "idle")

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons.clear()
        self._folder.cleanup()

    def environment(self):
        return {**os.environ, "PATH": self.path(), "SLURM_CONF": f"{self.folder}/slurm.conf"}

    def run(self, *command, timeout=30, **keywords):
        return subprocess.run(list(map(str, command)), text=True, errors="surrogateescape", stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=timeout, env=self.environment(), **keywords)

    def _start(self, name, *arguments):
        with open(self.folder / f"{name}.log", "w") as log:
            self.daemons.append(subprocess.Popen([name, *arguments], stdout=log, stderr=log,
                                                 stdin=subprocess.DEVNULL, env=self.environment()))

    def _wait(self, name, is_ready, seconds=60):
        end = time.monotonic() + seconds
        while not is_ready():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self.daemons):
                raise RuntimeError(f"{name} did not start within {seconds} s:\n" +
                                   (self.folder / f"{name}.log").read_text()[-2000:])
            time.sleep(0.2)
