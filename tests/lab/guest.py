"""One guest: a virtual machine that runs one script.

    with Vm(folder, "date -s @0; mpiexec -n 2 ...", build=build, cpus=1) as vm:
        result = vm.wait(60)      # code, out, err; code None: no answer within the deadline

The guest sees the host's /usr and the build folder read-only and `folder` writable, all at their own paths, and nothing
else of the host; it has no way out to a network. A Vm that is left is ended, whatever it was doing, and so is one whose
starter was killed.
"""
import contextlib
import dataclasses
import functools
import pathlib
import platform
import shutil
import subprocess
import tempfile
import time

from image import LabError, find, make_image

HERE = pathlib.Path(__file__).resolve().parent
QEMU = "qemu-system-x86_64"
# What programs of /usr need of /etc; no more, for a guest has no business with the host's secrets.
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "nsswitch.conf", "protocols", "services",
       "libibverbs.d", "localtime")
# Emulated, reading the clock through the HPET takes 10 us; the TSC of an emulated machine is the same on all its CPUs. Where
# programs lie at the same addresses in each run, what qemu has translated of them serves again (a start takes 2/3 of the time).
KERNEL_WORDS = ("console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable clocksource=tsc no_timer_check "
                "cryptomgr.notests random.trust_cpu=on norandmaps")
# qemu takes a turn of its loop for each byte of a `rep movsb` or `rep stosb`. On a CPU that does not claim to be fast at them
# (ERMS, FSRM) the kernel moves words: pages are cleared, messages copied in an eighth of the time.
EMULATED_CPU = "max,-erms,-fsrm"
FIRST_SECTOR = bytes([0xBA, 0xF4, 0x00, 0xB0, 0x10, 0xEE, 0xF4])   # mov dx,0xf4; mov al,0x10; out dx,al; hlt
CAPTURED = 96   # bytes kept of a frame: all headers of RoCEv2, over IPv6 too
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
    """kvm where it really runs a guest, else tcg: a nested /dev/kvm may be there and fail, or hang at the first instruction.

    Without a processor's own virtualisation (kvm_intel, kvm_amd) a kernel as it is runs as good as not at all: seen with kvm_pvm,
    whose first sector ran well.
    """
    if not any(pathlib.Path("/sys/module", vendor).is_dir() for vendor in ("kvm_intel", "kvm_amd")):
        return "tcg"
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
    """One guest; started by entering it, or by prepare_state() and start()."""

    def __init__(self, folder, script, *, build=None, cpus=2, memory_mb=1536, modules=("base",), identity=0,
                 cable=None, processor=None):
        """`folder`: shared, writable; `script`: bash; `modules`: sets of image.MODULES; `cable`: one end of a connected
        stream socket, the other end is another guest's; what passes is then written to `capture`; `processor`: a model
        that qemu knows, in place of all that there is here."""
        if not find("setpriv"):
            raise LabError("no setpriv (package util-linux)")
        if platform.machine() != "x86_64" or not find(QEMU):
            raise LabError(f"no {QEMU} (package qemu-system-x86) on this {platform.machine()} machine")
        self.folder = pathlib.Path(folder).resolve()
        self.state = self.folder / f"vm{identity}"
        self.capture = self.state / "capture.pcap"
        self.build = pathlib.Path(build or self.folder).resolve()
        self.script, self.cpus, self.memory_mb, self.modules = script, cpus, memory_mb, modules
        self.identity, self.cable, self.processor = identity, cable, processor
        self.process = None

    def start(self):
        image = make_image()
        self.began = time.monotonic()
        kept = (self.cable.fileno(),) if self.cable else ()
        with (self.state / "qemu.log").open("w") as log:
            self.process = subprocess.Popen(self.command(image), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True, pass_fds=kept)

    def prepare_state(self):
        """What the guest finds at its start; nothing of a guest before it."""
        shutil.rmtree(self.state, ignore_errors=True)
        shutil.copytree(HERE / "tools", self.state / "tools")
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
        kind, model = ("kvm", "host") if accel == "kvm" else ("tcg,thread=multi", EMULATED_CPU)
        cpu = ["-accel", kind, "-cpu", self.processor or model]
        words = (f"{KERNEL_WORDS} weft.share={self.folder} weft.build={self.build} weft.state={self.state} "
                 f"weft.id={self.identity} weft.modules={','.join(self.modules)}")
        # setpriv: the kernel ends the guest where this process is killed
        return ["setpriv", "--pdeathsig", "KILL", QEMU, *cpu, "-smp", str(self.cpus), "-m", str(self.memory_mb),
                "-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{self.state / 'console'}",
                "-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", words,
                *shared("usr", "/usr", readonly=True), *shared("build", self.build, readonly=True),
                *shared("share", self.folder),
                *self.network(),
                # 4200 bytes are the MTU that gives RoCE packets of 4096; no boot ROM, it would only cost time
                "-device", f"virtio-net-pci,netdev=n0,mac=52:54:00:00:00:0{self.identity},host_mtu=4500,romfile="]

    def network(self):
        if not self.cable:
            return ["-netdev", "user,restrict=on,id=n0"]
        return ["-netdev", f"socket,fd={self.cable.fileno()},id=n0",
                "-object", f"filter-dump,id=f0,netdev=n0,file={self.capture},maxlen={CAPTURED}"]

    def wait(self, timeout):
        """Waits for the command's end, at most `timeout` seconds, and ends the guest."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout)
        self.end()
        return self.result()

    def code(self):
        """The script's exit code; None as long as it has none."""
        text = self.read("exit").strip()
        return int(text) if text else None

    def result(self):
        return VmResult(self.code(), self.read("out"), self.read("err"),
                        self.read("qemu.log") + self.read("console"), time.monotonic() - self.began)

    def read(self, name):
        path = self.state / name
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        self.prepare_state()
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
