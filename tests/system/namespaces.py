"""Private mount namespaces: a /dev/shm of a chosen size that no other process sees.

    with private_shm("64m") as shm:
        result = run([*shm.enter, "mpiexec", ...])
        assert shm.names() == []
"""
import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess

import pytest


@dataclasses.dataclass
class PrivateShm:
    """`enter`: words before a command that run it inside."""

    pid: int

    @property
    def enter(self):
        return ["nsenter", "-t", str(self.pid), "-m", "--wd=" + os.getcwd()]

    @property
    def path(self):
        return pathlib.Path(f"/proc/{self.pid}/root/dev/shm")

    def names(self):
        return sorted(path.name for path in self.path.iterdir())


@contextlib.contextmanager
def private_shm(size="50%"):
    """Skips the test where namespaces are not allowed."""
    if not shutil.which("unshare") or not shutil.which("nsenter"):
        pytest.skip("unshare and nsenter (package util-linux) are needed for a /dev/shm of one's own")
    script = f"mount --make-rprivate / && mount -t tmpfs -o size={size},mode=1777 tmpfs /dev/shm && echo ready && exec cat"
    holder = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    try:
        if holder.stdout.readline() != "ready\n":
            pytest.skip(f"no private /dev/shm here: {holder.stderr.read().strip()}")
        yield PrivateShm(holder.pid)
    finally:
        holder.stdin.close()
        try:
            holder.wait(5)
        except subprocess.TimeoutExpired:
            holder.kill()
            holder.wait()
        holder.stdout.close()
        holder.stderr.close()
