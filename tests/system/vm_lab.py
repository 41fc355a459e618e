"""Programs of this build inside a virtual machine (tests/lab), as a system test uses it.

    result = run_in_vm(folder, script, cpus=1)      # a VmResult; the test skips where there can be no guest
    script = f"{in_guest(mpiexec_command(2, 'tp-allgather', '--csv', folder / 'rows.csv'))}"

`folder` and the build folder have the same paths in the guest. A guest that gives no answer fails the test.
"""
import pathlib
import shlex
import sys

import pytest

from harness import BUILD, TREE

sys.path.insert(0, str(TREE / "tests" / "lab"))

from vm import LabError, Vm, accelerator   # noqa: E402  (found by the line above)

# MPICH here goes through UCX, which would look for devices that a guest has not, and for RDMA where it has.
ENVIRONMENT = "export UCX_TLS=posix,self LC_ALL=C.UTF-8"
SIGILL = "Illegal instruction"


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
    if accelerator() == "tcg" and SIGILL in result.out + result.err:
        pytest.skip("programs tuned for this processor (-march=native) use instructions that qemu does not emulate: "
                    "configure with -DWEFT_NATIVE=OFF")
    return result
