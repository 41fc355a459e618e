"""Starts weft's programs for the scripts that show figures: in turn, in another order each round, rows into one CSV.

    study = Study("show_speed", arguments, folder)
    study.run([Command("tp-allgather", 2, "--sizes 8:64K:x8 --phase comm")])
    study.csv

Launches are started as a person would start them; a folder that was measured before is read again with --from.
"""
import argparse
import dataclasses
import datetime
import os
import pathlib
import random
import shlex
import shutil
import subprocess
import sys

from .rows import UsageError, provenance

TREE = pathlib.Path(__file__).resolve().parents[2]
LAUNCHER_VARIABLES = ("PMI_", "PMI2_", "PMIX_", "HYDRA_", "HYDI_", "MPIEXEC_", "MPI_LOCAL", "OMPI_", "SLURM_")
LONGEST = 600  # seconds of a launch, after which something is wrong


@dataclasses.dataclass(frozen=True)
class Command:
    """One mpiexec. `program` is a name in build/bin; it writes its rows with --csv, or a table to its standard output, which
    is kept in the file `output` with the number of the launch."""

    program: str
    ranks: int
    options: str
    output: str = ""

    def words(self, bin_folder, csv_path):
        where = [] if self.output else ["--csv", str(csv_path)]
        return [find_mpiexec(), "-n", str(self.ranks), str(bin_folder / self.program), *shlex.split(self.options), *where]

    def __str__(self):
        where = f">> {self.output}" if self.output else "--csv rows.csv"
        return f"mpiexec -n {self.ranks} build/bin/{self.program} {self.options} {where}"


def find_mpiexec():
    found = next(filter(None, map(shutil.which, ("mpiexec.mpich", "mpiexec.hydra", "mpiexec"))), None)
    if not found:
        raise UsageError("no mpiexec on the path; install mpich")
    return found


class Study:
    """A folder with the rows of several launches."""

    def __init__(self, name, arguments):
        self.launches, self._reuse = arguments.launches, arguments.reuse
        build = pathlib.Path(os.environ.get("WEFT_BUILD", TREE / "build"))
        self.bin_folder = build / "bin"
        stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        self.folder = pathlib.Path(arguments.reuse or arguments.results or TREE / "results" / f"{name}-{stamp}")

    @property
    def csv(self):
        return self.folder / "rows.csv"

    def run(self, commands, probe=None):
        """Starts each of `commands` once in each of the launches; nothing with --from. Says what it starts. `probe` prints a
        head and a number: it is started between all others, and what it printed on both sides of each is in states.csv."""
        if self._reuse:
            return
        for command in (*commands, *([probe] if probe else [])):
            if not (self.bin_folder / command.program).exists():
                raise UsageError(f"{self.bin_folder / command.program} is not built; cmake -S . -B build -DWEFT_TESTS=ON && "
                                 f"cmake --build build --target {command.program}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make {self.folder}: {error.strerror}; choose another with --results") from None
        print(f"{self.launches} launches of each of these, in turn:", *commands, sep="\n  ", flush=True)
        order, numbered = random.Random(1), list(enumerate(commands))
        state = self._probed(probe)
        for launch in range(1, self.launches + 1):
            for number, command in order.sample(numbered, len(numbered)):
                progress(f"launch {launch} of {self.launches}: {command.program}")
                printed = self.start(command)
                if command.output:
                    self._keep(command.output, launch, number, printed)
                if probe:
                    before, state = state, self._probed(probe)
                    launch_id = "" if command.output else self._newest_launch_id()
                    self._keep("states.csv", launch, number, f"launch_id,before,after\n{launch_id},{before},{state}")
        progress("")

    def _probed(self, probe):
        return self.start(probe).splitlines()[-1] if probe else ""

    def _newest_launch_id(self):
        return max(((number, str(entry.get("launch_id"))) for number, entry in provenance(self.csv)), default=(0, ""))[1]

    def _keep(self, name, launch, number, printed):
        """Appends a table, with the numbers of the launch and of the command in front."""
        header, *lines = printed.splitlines()
        path = self.folder / name
        with open(path, "a", encoding="utf-8") as file:
            if not file.tell():
                file.write(f"launch,command,{header}\n")
            file.writelines(f"{launch},{number},{line}\n" for line in lines)

    def start(self, command):
        """One launch; returns what it printed. UsageError where it failed, with its own words."""
        words = command.words(self.bin_folder, self.csv)
        env = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES)}
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env=env,
                                  timeout=LONGEST, check=False)
        except subprocess.TimeoutExpired:
            raise UsageError(f"no end after {LONGEST} s: {command}") from None
        if done.returncode:
            said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            raise UsageError(f"exit code {done.returncode}: {command}: {said[0] if said else 'no message'}")
        return done.stdout


def progress(text):
    """A line that the next one overwrites, for a person who waits."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


class Parser(argparse.ArgumentParser):
    """One line for a wrong option, like every other error."""

    def error(self, message):
        raise UsageError(f"{message}; --help tells the options")


def parser(description, launches):
    """The options that all scripts have."""
    made = Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--launches", type=positive, default=launches, metavar="N", help=f"of each command (default {launches})")
    made.add_argument("--quick", action="store_true", help="few sizes and short times: to see that it works, not to believe")
    made.add_argument("--results", metavar="DIR", help="folder for the rows (default results/NAME-TIME)")
    made.add_argument("--from", dest="reuse", metavar="DIR", help="start nothing, show the rows of an earlier folder")
    return made


def positive(text):
    if not text.isdecimal() or not 0 < int(text) < 10000:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of launches (1 to 9999)")
    return int(text)


def finish(main):
    """Runs main(words) and leaves with its exit code, or 2 and one line."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except UsageError as error:
        print(f"{pathlib.Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print(f"\n{pathlib.Path(sys.argv[0]).name}: interrupted; --from shows the rows that were measured", file=sys.stderr)
        code = 3
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 2
    sys.exit(code)
