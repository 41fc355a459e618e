"""One machine as a Slurm cluster, in a folder of its own, on free ports, ended by pid.

    with slurm_lab(folder) as lab:
        result = lab.run(["sbatch", "-W", ...])

Everything that Slurm keeps lies below the folder, so that it neither needs nor disturbs an installed Slurm.
"""
import contextlib
import dataclasses
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import time

import pytest

from harness import run

CPUS = 4   # more than the machine may have: the tests launch four ranks
CONFIGURATION = """\
ClusterName=weftlab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={daemon_port}
AuthType=auth/munge
AuthInfo=socket={state}/munge/socket
CryptoType=crypto/munge
MpiDefault=pmi2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmUser=root
SlurmdUser=root
SlurmdParameters=config_overrides
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd.pid
SlurmdSpoolDir={state}/spool
StateSaveLocation={state}/state
SlurmctldLogFile={state}/slurmctld.log
SlurmdLogFile={state}/slurmd.log
KillWait=5
InactiveLimit=0
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


@dataclasses.dataclass
class SlurmLab:
    host: str
    environment: dict

    def run(self, command, *, timeout=120, env=None, cwd=None):
        return run(command, env={**self.environment, **(env or {})}, timeout=timeout, cwd=cwd)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def missing():
    """Why there can be no lab here, in one line; empty if there can."""
    if os.geteuid() != 0:
        return "a Slurm of one's own needs root"
    absent = [name for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun") if not find(name)]
    return f"not installed: {', '.join(absent)} (packages slurm-wlm, munge)" if absent else ""


def find(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def write_state(state):
    """Folders, a key, the configuration; returns the environment of the clients."""
    for name in ("munge", "spool", "state"):
        (state / name).mkdir(mode=0o755)
    key = state / "munge" / "key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    controller_port, daemon_port = free_ports(2)
    host = socket.gethostname().split(".")[0]
    path = state / "slurm.conf"
    path.write_text(CONFIGURATION.format(host=host, state=state, controller_port=controller_port, daemon_port=daemon_port, cpus=CPUS))
    return host, {"SLURM_CONF": str(path)}


def daemons(state):
    """The commands, in the order of their start; each stays in the foreground."""
    munge = state / "munge"
    files = [f"--{name}-file={munge}/{name}" for name in ("key", "pid", "log", "seed")]
    return [[find("munged"), "--foreground", "--force", f"--socket={munge}/socket", *files],
            [find("slurmctld"), "-D", "-c"], [find("slurmd"), "-D", "-c"]]


@contextlib.contextmanager
def slurm_lab(state):
    """Starts it, waits until its node is idle, ends it. Skips the test, with the reason, where it cannot be."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    host, environment = write_state(state)
    lab, started = SlurmLab(host, environment), []
    try:
        for command in daemons(state):
            log = (state / f"{pathlib.Path(command[0]).name}.out").open("w")
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                            env={**os.environ, **environment}, start_new_session=True))
            log.close()
            if command[0].endswith("munged"):
                wait_until(lambda: (state / "munge" / "socket").exists(), started, state)
        wait_until(lambda: lab.run(["sinfo", "-h", "-o", "%t"], timeout=10).out.strip() == "idle", started, state)
        yield lab
    finally:
        if len(started) == 3:
            lab.run(["scancel", "--full", "--state=RUNNING", "--user=root"], timeout=10)
        for process in reversed(started):
            end(process)


def wait_until(ready, started, state, seconds=40):
    deadline = time.monotonic() + seconds
    while not ready():
        dead = [process for process in started if process.poll() is not None]
        if dead or time.monotonic() > deadline:
            logs = "\n".join(f"{path.name}: {path.read_text()[-600:]}" for path in state.glob("*.out"))
            raise AssertionError(f"Slurm did not start ({[process.args[0] for process in dead]})\n{logs}")
        time.sleep(0.2)


def end(process):
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
