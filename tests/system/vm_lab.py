"""Programs of this build inside virtual machines (tests/lab), as a system test uses them.

    result = run_in_vm(folder, script, cpus=1)      # a VmResult; the test skips where there can be no guest
    script = f"{in_guest(mpiexec_command(2, 'tp-allgather', '--csv', folder / 'rows.csv'))}"

    result = run_in_two_vms(folder, script, prepare=RDMA_UP, modules=RDMA)      # a PairResult: first, second, captures
    script = f"{in_guest(mpiexec_over_two(4, 'tp-allgather', ...))}"            # two ranks on each guest
    flows = read_flows(result.captures[0])                                      # pcap_flows.py

`folder` and the build folder have the same paths in the guests. A guest that gives no answer fails the test.
Tools of the guests (`on-second`, `await-listener`, `impair`, ...): tests/lab/README.md.
"""
import pathlib
import shlex
import sys

import pytest

from harness import BUILD, TREE, program

sys.path.insert(0, str(TREE / "tests" / "lab"))

from guest import LabError, Vm, accelerator   # noqa: E402  (found by the line above)
from pair import SERVE, Pair   # noqa: E402

# MPICH here goes through UCX, which would look for devices that a guest has not, and for RDMA where it has; UCX's own RDMA
# aborts on Soft-RoCE.
ENVIRONMENT = "export UCX_TLS=posix,self LC_ALL=C.UTF-8"
ENVIRONMENT_OF_TWO = "export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 LC_ALL=C.UTF-8"
RDMA = ("base", "rdma", "net")   # modules of a guest with Soft-RoCE whose network can be impaired
RDMA_UP = "rdma-up || exit 1"   # lines before a script: rxe0 is there, its port ACTIVE, its GID known
OTHER_PROCESSOR = "this program was built for processors with"


def in_guest(command):
    """The words of a command as one line of the guest's shell."""
    return shlex.join(str(word) for word in command) + " </dev/null"


def run_in_vm(folder, script, *, timeout=400, **more):
    """Runs bash lines in a guest of its own. An emulated one takes 10 s to start on an idle machine."""
    path = pathlib.Path(folder)
    try:
        with Vm(path, f"{ENVIRONMENT}\ncd {path}\n{script}", build=BUILD, **more) as vm:
            result = vm.wait(timeout)
    except LabError as error:
        pytest.skip(f"no virtual machine here: {error}")
    assert result.code is not None, f"no answer from the guest within {timeout} s\n{result.console[-3000:]}\n{result.err[-3000:]}"
    if "processor" not in more:
        skip_if_tuned(result)
    return result


def run_in_two_vms(folder, script, *, second=SERVE, prepare="", timeout=400, **more):
    """Runs `prepare` and `script` in vm1, `prepare` and `second` in vm2; by default that does what vm1 asks for.

    A guest that fails ends both: `why` says which, and the other has no code. `timeout` is of both together.
    """
    path = pathlib.Path(folder)
    before = f"{ENVIRONMENT_OF_TWO}\ncd {path}\n{prepare}\n"
    try:
        with Pair(path, before + script, before + second, build=BUILD, **more) as pair:
            result = pair.wait(timeout)
    except LabError as error:
        pytest.skip(f"no virtual machines here: {error}")
    assert result.first.code is not None or result.second.code is not None, told(result)
    skip_if_tuned(result.first)
    skip_if_tuned(result.second)
    return result


def mpiexec_over_two(ranks, name, *arguments, launcher=()):
    """Words that run weft-NAME from the first of two guests, half of the ranks on each."""
    return ["mpiexec-over-two", ranks, *launcher, program(name), *arguments]


def told(result):
    """What two guests said, for a test that failed."""
    return f"{result.why}\n" + "\n".join(
        f"--- vm{number}: code {vm.code}, {vm.seconds:.1f} s\n{vm.out[-3000:]}\n{vm.err[-3000:]}\n{vm.console[-1500:]}"
        for number, vm in enumerate((result.first, result.second), 1))


def skip_if_tuned(result):
    if accelerator() == "tcg" and OTHER_PROCESSOR in result.err:
        pytest.skip("the programs were built with -DWEFT_ARCH for a processor that qemu does not emulate; x86-64-v3 is one")
