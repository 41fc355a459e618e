#!/usr/bin/env python3
"""A virtual machine that runs one command: a kernel of its own, so clocks may be set, CPUs taken away, RDMA emulated.

    with Vm(folder, "date -s @0; mpiexec -n 2 ...", build=build, cpus=1) as vm:
        result = vm.wait(60)      # code, out, err; code None: no answer within the deadline
    vm.py [--cpus N] [--rdma] [--timeout S] COMMAND...      by hand; prints what the command printed

The guest sees the host's /usr and the build folder read-only and `folder` writable, all at their own paths, and nothing
else of the host; it has no way out to a network. A Vm that is left is ended, whatever it was doing.
"""
import argparse
import contextlib
import dataclasses
import functools
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

from image import LabError, find, make_image

QEMU = "qemu-system-x86_64"
# What programs of /usr need of /etc; no more, for a guest has no business with the host's secrets.
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "nsswitch.conf", "protocols", "services",
       "libibverbs.d", "localtime")
# Emulated, reading the clock through the HPET takes 10 us; the TSC of an emulated machine is the same on all its CPUs.
KERNEL_WORDS = ("console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable clocksource=tsc no_timer_check "
                "cryptomgr.notests random.trust_cpu=on")
FIRST_SECTOR = bytes([0xBA, 0xF4, 0x00, 0xB0, 0x10, 0xEE, 0xF4])   # mov dx,0xf4; mov al,0x10; out dx,al; hlt
SECTOR_ANSWER = 33   # isa-debug-exit ends qemu with 2 * 0x10 + 1


@dataclasses.dataclass
class VmResult:
    """How the command ended; `code` is None where the guest gave no answer within the deadline."""

    code: int | None
    out: str
    err: str
    console: str
    seconds: float


@functools.lru_cache(None)
def accelerator():
    """kvm where it really runs a guest, else tcg: a nested /dev/kvm may be there and fail, or hang at the first instruction."""
    with tempfile.NamedTemporaryFile() as disk:
        disk.write(FIRST_SECTOR.ljust(510, b"\0") + b"\x55\xaa")
        disk.flush()
        command = [QEMU, "-accel", "kvm", "-cpu", "host", "-m", "64", "-nodefaults", "-display", "none",
                   "-device", "isa-debug-exit,iobase=0xf4,iosize=1", "-drive", f"format=raw,file={disk.name},if=ide"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=False)
        except subprocess.TimeoutExpired:   # killed by SIGKILL: qemu does not obey others while its CPU hangs
            return "tcg"
    return "kvm" if done.returncode == SECTOR_ANSWER else "tcg"


class Vm:
    """One guest; started by entering it, or by start()."""

    def __init__(self, folder, script, *, build=None, cpus=2, memory_mb=1536, modules=("base",), identity=0,
                 net="user,restrict=on"):
        """`folder`: shared, writable; `script`: bash; `modules`: sets of image.MODULES; `net`: qemu's -netdev without id."""
        if platform.machine() != "x86_64" or not find(QEMU):
            raise LabError(f"no {QEMU} (package qemu-system-x86) on this {platform.machine()} machine")
        self.folder = pathlib.Path(folder).resolve()
        self.state = self.folder / f"vm{identity}"
        self.build = pathlib.Path(build or self.folder).resolve()
        self.script, self.cpus, self.memory_mb, self.modules = script, cpus, memory_mb, modules
        self.identity, self.net = identity, net
        self.process = None

    def start(self):
        image = make_image()
        shutil.rmtree(self.state, ignore_errors=True)
        self.prepare_state()
        self.began = time.monotonic()
        with (self.state / "qemu.log").open("w") as log:
            self.process = subprocess.Popen(self.command(image), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)

    def prepare_state(self):
        etc = self.state / "etc"
        etc.mkdir(parents=True)
        for name in ETC:
            source = pathlib.Path("/etc") / name
            if source.is_dir():
                shutil.copytree(source, etc / name, symlinks=True)
            elif source.exists():
                shutil.copy(source, etc / name)
        (self.state / "command").write_text(self.script + "\n")

    def command(self, image):
        accel = accelerator()
        cpu = ["-accel", "kvm", "-cpu", "host"] if accel == "kvm" else ["-accel", "tcg,thread=multi", "-cpu", "max"]
        words = (f"{KERNEL_WORDS} weft.share={self.folder} weft.build={self.build} weft.state={self.state} "
                 f"weft.id={self.identity} weft.modules={','.join(self.modules)}")
        return [QEMU, *cpu, "-smp", str(self.cpus), "-m", str(self.memory_mb), "-nodefaults", "-display", "none",
                "-no-reboot", "-serial", f"file:{self.state / 'console'}",
                "-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", words,
                *shared("usr", "/usr", readonly=True), *shared("build", self.build, readonly=True),
                *shared("share", self.folder),
                "-netdev", f"{self.net},id=n0",
                # 4200 bytes are the MTU that gives RoCE packets of 4096; no boot ROM, it would only cost time
                "-device", f"virtio-net-pci,netdev=n0,mac=52:54:00:00:00:0{self.identity},host_mtu=4500,romfile="]

    def wait(self, timeout):
        """Waits for the command's end, at most `timeout` seconds, and ends the guest."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout)
        self.end()
        code = self.read("exit").strip()
        return VmResult(int(code) if code else None, self.read("out"), self.read("err"),
                        self.read("qemu.log") + self.read("console"), time.monotonic() - self.began)

    def read(self, name):
        path = self.state / name
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.end()


def shared(tag, path, readonly=False):
    """qemu's words for a folder that the guest mounts over 9p."""
    if "," in str(path) or " " in str(path):
        raise LabError(f"qemu cannot share '{path}': a comma or blank in the name")
    return ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,multidevs=remap"
            + (",readonly=on" if readonly else "")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--build", help="build folder, seen read-only at its own path")
    parser.add_argument("--rdma", action="store_true", help="load Soft-RoCE")
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("words", nargs="+", metavar="COMMAND")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-vm-") as folder:
        modules = ("base", "rdma", "net") if options.rdma else ("base",)
        with Vm(folder, " ".join(options.words), build=options.build, cpus=options.cpus, modules=modules) as vm:
            result = vm.wait(options.timeout)
    sys.stdout.write(result.out)
    sys.stderr.write(result.err)
    if result.code is None:
        sys.exit(f"no answer within {options.timeout:g} s; the guest's console:\n{result.console[-3000:]}")
    print(f"exit code {result.code} after {result.seconds:.1f} s ({accelerator()}); {result.console.strip()[-60:]}",
          file=sys.stderr)
    sys.exit(result.code)


if __name__ == "__main__":
    try:
        main()
    except LabError as error:
        sys.exit(f"vm.py: {error}")
