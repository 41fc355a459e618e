# label: slurm
"""weft under a Slurm of one machine: the job script, both launchers, and a srun that brings no PMI."""
import json
import os
import shutil

import pytest

from harness import PATTERNS, QUICK, TREE, assert_all_verified, program, read_rows
from slurm_lab import slurm_lab

SBATCH = TREE / "scripts" / "weft.sbatch"
SHORT = ("--quick", "--", "--phase", "comm", "--max-time", "0.02")


@pytest.fixture
def lab(folder):
    (folder / "slurm").mkdir()
    with slurm_lab(folder / "slurm") as running:
        yield running


def check_job(result, results, log, code=0):
    text = log.read_text() if log.exists() else ""
    assert result.code == code, f"{result}\n{text}"
    (job,) = results.iterdir()
    rows = assert_all_verified(read_rows(job / "rows.csv"))
    assert {row["pattern"] for row in rows} == set(PATTERNS)
    assert {row["world"] for row in rows} == {"2"}
    for pattern in PATTERNS:
        assert json.loads((job / f"status-{pattern}.json").read_text())["state"] == "complete"
    assert "hosts asked for: 1, with rows: 1" in text, text
    return text


def submit(lab, folder, *words, path=None, cwd=None):
    """sbatch and wait; two tasks, into a private results folder."""
    env = {"PATH": path} if path else {}
    return lab.run(["sbatch", "-W", "-n", 2, "--output", folder / "job.out", *words, "--transport", "mpi,shm", "--results",
                    folder / "results", *SHORT], timeout=240, env=env, cwd=cwd)


def test_job_with_srun_pmi2(lab, folder):
    result = submit(lab, folder, SBATCH, cwd="/")
    assert "launched by srun" in check_job(result, folder / "results", folder / "job.out")


def test_job_with_mpiexec(lab, folder):
    """Where srun offers no pmi2, hydra starts the ranks."""
    tools = folder / "tools"
    tools.mkdir()
    srun = tools / "srun"
    srun.write_text(f'#!/bin/sh\n[ "$1" = --mpi=list ] && echo none && exit 0\nexec {shutil.which("srun")} "$@"\n')
    srun.chmod(0o755)
    result = submit(lab, folder, SBATCH, path=f"{tools}:{os.environ['PATH']}", cwd=folder)
    assert "mpiexec" in check_job(result, folder / "results", folder / "job.out")


def test_two_jobs_have_two_folders(lab, folder):
    for _ in range(2):
        submit(lab, folder, SBATCH)
    assert len(list((folder / "results").iterdir())) == 2


def test_bad_options_are_refused(lab, folder):
    result = lab.run(["sbatch", "-W", "-n", 1, "--output", folder / "job.out", SBATCH, "--modle", "tiny"])
    assert result.code == 2 and "--modle" in (folder / "job.out").read_text()


def test_srun_pmi2_runs_a_program(lab, folder):
    result = lab.run(["srun", "--mpi=pmi2", "-n", 4, program("tp-allgather"), "--tp", 4, *QUICK, "--csv", folder / "r.csv"])
    assert result.code == 0, result
    assert {row["world"] for row in assert_all_verified(read_rows(folder / "r.csv"))} == {"4"}


def test_srun_without_pmi_is_refused(lab, folder):
    """n programs that each think they are alone measure nothing: exit 2, and the cure."""
    for layout in (("--tp", 4), ()):
        result = lab.run(["srun", "--mpi=none", "-n", 4, program("tp-allgather"), *layout, *QUICK, "--csv", folder / "r.csv"])
        assert result.code == 2, result
        assert "srun --mpi=pmi2" in result.err and "4" in result.err, result
        assert not (folder / "r.csv").exists() or not read_rows(folder / "r.csv")
    alone = lab.run(["srun", "--mpi=none", "-n", 1, program("tp-allgather"), *QUICK, "--csv", folder / "r.csv"])
    assert alone.code == 0, alone


def test_the_time_limit_comes(lab, folder):
    """The job script is told ahead of the limit: the program ends with whole rows, no other one starts, the verdict says why."""
    result = lab.run(["sbatch", "-W", "-n", 2, "--time", 1, "--output", folder / "job.out", SBATCH, "--transport", "shm", "--results",
                      folder / "results", "--", "--phase", "comm", "--sizes", "4K:1M:x2", "--min-time", 2, "--max-time", 3], timeout=200)
    text = (folder / "job.out").read_text()
    assert result.code == 3, f"{result}\n{text}"
    (job,) = (folder / "results").iterdir()
    assert_all_verified(read_rows(job / "rows.csv"))
    ended, *others = [path for path in sorted(job.glob("status-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)]
    told = json.loads(ended.read_text())
    assert told["state"] == "incomplete" and told["exit_code"] == 3 and "signal" in told["why"].lower(), f"{told}\n{text}"
    assert all(json.loads(other.read_text())["state"] == "complete" for other in others)
    assert len(others) + 1 < len(PATTERNS), text   # else it was no limit
    assert "Verdict" in text and "not started" in text and "not finished" in text, text


def test_a_signal_in_the_middle_keeps_the_rows(lab, folder):
    """scancel in the middle: what was measured is whole, and the status says so."""
    csv = folder / "r.csv"
    result = lab.run(["sbatch", "-W", "-n", 2, "--output", folder / "job.out", "--wrap",
                      f"( until [ -e {csv} ] && [ $(wc -l <{csv}) -gt 1 ]; do sleep 0.1; done; scancel --signal=TERM $SLURM_JOB_ID ) & "
                      f"srun --mpi=pmi2 {program('tp-allgather')} --transport shm --sizes 4K:16M:x2 --min-time 0.3 --max-time 0.5 "
                      f"--csv {csv}; code=$?; wait; exit $code"], timeout=200)
    assert result.code != 0
    rows = assert_all_verified(read_rows(csv))
    assert rows
