#!/usr/bin/env python3
"""Runs a command in a virtual machine (guest.py), or in two that share a cable (pair.py), by hand.

    vm.py [--rdma] COMMAND...             prints what the command printed, ends with its exit code
    vm.py --two [--both] COMMAND...       on the first of two, while the second serves; or on both

With --rdma the command finds Soft-RoCE's rxe0, ready. README.md says what a guest is and which tools it has.
"""
import argparse
import shutil
import sys
import tempfile

from guest import Vm, accelerator
from image import LabError
from pair import SERVE, Pair


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=int, help="processors of a guest (2; 1 where there are two guests)")
    parser.add_argument("--build", help="build folder, seen read-only at its own path")
    parser.add_argument("--rdma", action="store_true", help="load Soft-RoCE and the queueing disciplines, make rxe0")
    parser.add_argument("--two", action="store_true", help="two guests; the path of the capture is printed")
    parser.add_argument("--both", action="store_true", help="with --two: the command on each")
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("words", nargs="+", metavar="COMMAND")
    options = parser.parse_args()
    prepare, script = "rdma-up || exit 1\n" if options.rdma else "", " ".join(options.words)
    more = {"build": options.build, "modules": ("base", "rdma", "net") if options.rdma else ("base",)}
    with tempfile.TemporaryDirectory(prefix="weft-vm-") as folder:
        results, why = (run_two if options.two else run_one)(folder, prepare, script, options, more)
    for name, result in results.items():
        sys.stdout.write(f"--- {name}\n" * (len(results) > 1) + result.out)
        sys.stderr.write(result.err)
    answers = {name: result for name, result in results.items() if result.code is not None}
    for name, result in answers.items():
        print(f"{name}: exit code {result.code} after {result.seconds:.1f} s ({accelerator()}); {result.console.strip()[-60:]}",
              file=sys.stderr)
    if len(answers) < len(results):
        consoles = [f"--- console of {name}\n{results[name].console[-3000:]}" for name in results if name not in answers]
        sys.exit("\n".join([f"vm.py: {why}", *consoles]))
    sys.exit(max(result.code for result in answers.values()))


def run_one(folder, prepare, script, options, more):
    """Results by guest, and why there is none."""
    with Vm(folder, prepare + script, cpus=options.cpus or 2, **more) as vm:
        result = vm.wait(options.timeout)
    return {"vm0": result}, "" if result.code is not None else f"no answer within {options.timeout:g} s"


def run_two(folder, prepare, script, options, more):
    """Likewise; a guest that only served has no result."""
    prepare = f"export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0\n{prepare}"
    second = script if options.both else SERVE
    with Pair(folder, prepare + script, prepare + second, cpus=options.cpus or 1, **more) as pair:
        result = pair.wait(options.timeout)
    for number, capture in enumerate(result.captures, 1):
        with tempfile.NamedTemporaryFile(prefix=f"weft-vm{number}-", suffix=".pcap", delete=False) as kept:
            shutil.copyfile(capture, kept.name)
        print(f"capture of vm{number}: {kept.name}", file=sys.stderr)
    results = {"vm1": result.first, "vm2": result.second}
    if not options.both and result.first.code is not None and result.second.code is None:
        del results["vm2"]
    return results, result.why


if __name__ == "__main__":
    try:
        main()
    except LabError as error:
        sys.exit(f"vm.py: {error}")
