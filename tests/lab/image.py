"""Kernel and initramfs of the lab's guests, made once and kept in ~/.cache/weft/vm-lab (XDG_CACHE_HOME is obeyed).

    image = make_image()        # LabError where something is missing
    image.kernel, image.initrd

The kernel is Debian's (linux-image-amd64: the cloud kernel has no Soft-RoCE), downloaded with apt and unpacked, never
installed. The initramfs holds busybox, the modules in the order of their dependencies, and `init` beside this file.
"""
import contextlib
import dataclasses
import fcntl
import gzip
import hashlib
import lzma
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = "linux-image-amd64"
# Sets that a guest loads by name (weft.modules=...). rdma_rxe needs crc32_generic, which it does not declare.
MODULES = {
    "base": ("virtio_pci", "virtio_net", "9pnet_virtio", "9p"),
    "rdma": ("ib_uverbs", "rdma_ucm", "crc32_generic", "rdma_rxe"),
    "net": ("veth", "sch_netem", "sch_tbf", "sch_prio", "sch_ingress", "cls_u32", "act_gact"),
}
TOOLS = {"apt-get": "apt", "dpkg": "dpkg", "depmod": "kmod", "cpio": "cpio", "busybox": "busybox-static"}


class LabError(Exception):
    """Why there can be no lab here, in one line."""


@dataclasses.dataclass
class Image:
    kernel: pathlib.Path
    initrd: pathlib.Path


def find(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "weft" / "vm-lab"


def make_image():
    """The image, from the cache where it is there."""
    absent = [f"{name} (package {package})" for name, package in TOOLS.items() if not find(name)]
    if absent:
        raise LabError(f"not installed: {', '.join(absent)}")
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "lock"):
        kernel = cache / "kernel"
        sets = kernel / "modules" / "sets"
        if not sets.exists() or sets.read_text() != repr(MODULES):
            fetch_kernel(kernel)
        return Image(kernel / "vmlinux", make_initrd(cache, kernel))


@contextlib.contextmanager
def locked(path):
    """Two tests that start at once make one image."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def checked(command, why, **more):
    """Output of a command; its failure is why there is no lab."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise LabError(f"{why}: {command[0]} said: {said[-1] if said else f'nothing, exit code {done.returncode}'}")
    return done.stdout


def kernel_package():
    """Name of the package that the meta package asks for today; apt's lists may have to be fetched first."""
    for attempt in range(2):
        shown = subprocess.run(["apt-cache", "depends", PACKAGE], capture_output=True, text=True, check=False).stdout
        names = [line.split()[-1] for line in shown.splitlines() if "Depends: linux-image" in line]
        if names:
            return names[0]
        if attempt == 0:
            subprocess.run(["apt-get", "-q", "update"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    raise LabError(f"apt knows no package {PACKAGE}: run apt-get update as root, where there is a network")


def fetch_kernel(target):
    """Leaves vmlinux and the wanted modules in `target`, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        work = pathlib.Path(name)
        package = kernel_package()
        checked(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package],
                f"cannot download {package}", cwd=work)
        unpacked = work / "unpacked"
        checked(["dpkg", "-x", next(work.glob("*.deb")), unpacked], f"cannot unpack {package}")
        version = next((unpacked / "lib/modules").iterdir()).name
        checked([find("depmod"), "-b", unpacked, version], "cannot order the modules")
        made = work / "made"
        copy_modules(unpacked / "lib/modules" / version, made / "modules")
        (made / "vmlinux").write_bytes(uncompressed((unpacked / f"boot/vmlinuz-{version}").read_bytes()))
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)


def copy_modules(source, target):
    """The files of all sets, and for each set its files in loading order."""
    needs = {}
    for line in (source / "modules.dep").read_text().splitlines():
        file, _, below = line.partition(":")
        needs[pathlib.Path(file).stem.replace("-", "_")] = [*reversed(below.split()), file]
    loaded = []
    for name, modules in MODULES.items():
        order = []
        for module in modules:
            if module not in needs:
                raise LabError(f"this kernel has no module {module}")
            order += [file for file in needs[module] if file not in loaded + order]
        loaded += order
        for file in order:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / file, target / file)
        (target / f"{name}.order").write_text("".join(f"{file}\n" for file in order))
    (target / "sets").write_text(repr(MODULES))


def uncompressed(image):
    """The ELF kernel inside a bzImage (fields: Documentation/x86/boot.rst). Emulated, a guest would unpack it for 7 s.

    A kernel packed otherwise than by xz is left as it is, which works and is slower.
    """
    setup = (image[0x1F1] + 1) * 512
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[setup + offset:setup + offset + length]
    try:
        return lzma.LZMADecompressor().decompress(payload)
    except lzma.LZMAError:
        return image


def make_initrd(cache, kernel):
    """The initramfs for this kernel, this busybox and this init."""
    busybox = pathlib.Path(find("busybox")).read_bytes()
    stamp = hashlib.sha256(busybox + (HERE / "init").read_bytes() + str(kernel.stat().st_mtime_ns).encode())
    target = cache / f"initrd-{stamp.hexdigest()[:16]}.gz"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=cache) as name:
        root = pathlib.Path(name) / "root"
        (root / "bin").mkdir(parents=True)
        shutil.copytree(kernel / "modules", root / "lib/modules")
        for path, data in ((root / "bin/busybox", busybox), (root / "init", (HERE / "init").read_bytes())):
            path.write_bytes(data)
            path.chmod(0o755)
        names = "".join(f"{path.relative_to(root)}\n" for path in sorted(root.rglob("*")))
        packed = subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], input=names.encode(), cwd=root,
                                capture_output=True, check=True).stdout
        part = pathlib.Path(name) / "initrd"
        part.write_bytes(gzip.compress(packed, 1))
        for old in cache.glob("initrd-*.gz"):
            old.unlink()
        part.rename(target)
    return target
