"""Two guests whose cards share a cable, with a capture of what passes at either end.

    with Pair(folder, "on-second hostname; mpiexec-over-two 2 PROGRAM", build=build) as pair:
        result = pair.wait(100)       # result.first.code, .out, .err; result.captures; result.why: what ended it early

vm1 (10.0.2.11) runs the first script. vm2 (10.0.2.12) runs the second; by default it serves: it does what tools of the
first ask for, until the first is done. Both share `folder` and the build folder. A guest that fails ends both.
"""
import dataclasses
import pathlib
import socket
import time

from guest import Vm, VmResult

SERVE = "serve"
POLL_SECONDS = 0.05


@dataclasses.dataclass
class PairResult:
    """`second.code` is None where the second was ended because the first was done, or had failed."""

    first: VmResult
    second: VmResult
    captures: tuple[pathlib.Path, pathlib.Path]   # at vm1 and at vm2; each has both directions
    why: str   # empty where all came to its end; else in words which guest ended both, or that the time is over


class Pair:
    """Entered, it starts both; left, it ends both."""

    def __init__(self, folder, first, second=SERVE, *, cpus=1, **more):
        """`first`, `second`: bash; `more`: as Vm's. A second script that ends in `serve` ends with the first."""
        ends = socket.socketpair()
        self.vms = [Vm(folder, script, identity=number, cable=end, cpus=cpus, **more)
                    for number, (script, end) in enumerate(zip((first, second), ends), 1)]
        self.serves = second.rstrip().endswith(SERVE)

    def __enter__(self):
        try:
            for vm in self.vms:
                vm.prepare_state()   # before the first looks for the second's
            for vm in self.vms:
                vm.start()
        except BaseException:
            self.end()
            raise
        finally:
            for vm in self.vms:
                vm.cable.close()   # the guests have theirs; the death of one is seen by the other
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        for vm in self.vms:
            vm.end()

    def wait(self, timeout):
        """Waits for the scripts' end, at most `timeout` seconds, and ends the guests."""
        deadline = time.monotonic() + timeout
        while (over := self.over()) is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.end()
        first, second = self.vms
        return PairResult(first.result(), second.result(), (first.capture, second.capture),
                          f"no answer within {timeout:g} s" if over is None else over)

    def over(self):
        """None while they run; what ended them early, or an empty text."""
        codes = []
        for vm in self.vms:
            ended = vm.process.poll() is not None   # asked first: the exit code is written before the guest ends
            codes.append(vm.code())
            if codes[-1] is None and ended:
                return f"vm{vm.identity} ended without an answer"
            if codes[-1]:
                return f"vm{vm.identity} ended with exit code {codes[-1]}"
        done = codes[0] == 0 and (self.serves or codes[1] == 0)
        return "" if done else None
