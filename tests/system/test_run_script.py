# label: slow
"""scripts/run.sh as a user starts it: twice, in loops, under other launchers, at once, with wrong options."""
import os
import subprocess
import time

import pytest

from harness import BUILD, PATTERNS, TREE, assert_all_verified, find_mpiexec, read_rows, run, start, end_group

RUN = TREE / "scripts" / "run.sh"
ENV = {"WEFT_BUILD": BUILD}
SHORT = ("--no-install", "--quick")
SHORTEST = ("--", "--phase", "comm", "--max-time", "0.01", "--no-verify")


def started(folder):
    return [path for path in folder.iterdir() if (path / "rows.csv").exists()] if folder.exists() else []


def test_second_start_measures_within_10_s(folder):
    """Everything is installed and built: no time is lost before the first row."""
    results = folder / "results"
    run([RUN, "--no-install", "--build-only"], env=ENV, timeout=280)
    began = time.monotonic()
    process = start([RUN, "--quick", "--results", results], env=ENV, out=subprocess.DEVNULL)
    try:
        while not any((path / "rows.csv").read_text().count("\n") > 1 for path in started(results)):
            assert time.monotonic() - began < 10, "no row after 10 s"
            assert process.poll() is None or started(results), process.communicate()
            time.sleep(0.05)
        assert process.wait(200) == 0, process.communicate()
    finally:
        end_group(process)


def test_runs_all_programs_and_says_where(folder):
    result = run([RUN, *SHORT, "--results", folder], env=ENV, timeout=200)
    assert result.code == 0, result
    (made,) = started(folder)
    rows = assert_all_verified(read_rows(made / "rows.csv"))
    assert {row["pattern"] for row in rows} == set(PATTERNS)
    assert {row["transport"] for row in rows} == {"mpi", "shm"}
    assert {row["phase"] for row in rows} == {"compute", "comm", "serial", "overlap"}
    assert str(made) in result.out
    for pattern in PATTERNS:
        assert f"== weft-{pattern}" in result.out
        for name in (f"rows-{pattern}.json", f"flows-{pattern}.csv", f"status-{pattern}.json", f"{pattern}.log"):
            assert (made / name).stat().st_size > 0, name
    assert len({row["launch_id"] for row in rows}) == len(PATTERNS)


def test_sizes_in_place_of_a_model(folder):
    """What is passed on may be a sweep, which has no model: the suite adds none of its own."""
    result = run([RUN, *SHORT, "--transport", "shm", "--results", folder, *SHORTEST, "--sizes", "8,4K"], env=ENV, timeout=200)
    assert result.code == 0, result
    (made,) = started(folder)
    rows = read_rows(made / "rows.csv")
    assert {row["pattern"] for row in rows} == set(PATTERNS) and {row["size"] for row in rows} >= {"8", "4096"}
    assert {row["model"] for row in rows} == {""}
    result = run([RUN, *SHORT, "--model", "tiny", "--results", folder / "both", *SHORTEST, "--sizes", "8"], env=ENV, timeout=200)
    assert result.code == 2 and "leave one out" in result.out, result


def test_launches_take_turns_in_one_file(folder):
    """Each launch starts every program once; weft-compare tells them apart, and 2 a side are too few to say anything."""
    result = run([RUN, *SHORT, "--launches", 4, "--transport", "shm", "--results", folder, *SHORTEST], env=ENV, timeout=200)
    assert result.code == 0, result
    (made,) = started(folder)
    rows = assert_all_verified_or_unchecked(read_rows(made / "rows.csv"))
    order = list(dict.fromkeys((row["launch_id"], row["pattern"]) for row in rows))
    assert len(order) == 4 * len(PATTERNS)
    rounds = [[pattern for _, pattern in order[i:i + 5]] for i in range(0, 20, 5)]
    assert all(sorted(one) == sorted(PATTERNS) for one in rounds), rounds
    assert len({tuple(one) for one in rounds}) > 1, "every launch has the same order"
    for name in ("", "-2", "-3", "-4"):
        for pattern in PATTERNS:
            assert (made / f"rows-{pattern}{name}.json").exists() and (made / f"{pattern}{name}.log").stat().st_size > 0
    compare = run([TREE / "scripts" / "weft-compare", f"{made}@odd", f"{made}@even"], timeout=60)
    assert compare.code == 3 and "2 of 3 launches" in compare.out, compare
    compare = run([TREE / "scripts" / "weft-compare", f"{made}@odd", f"{made}@even", "--min-launches", 2], timeout=60)
    assert compare.code in (0, 3) and "too few launches" in compare.out and "not run in turn" not in compare.out, compare


def assert_all_verified_or_unchecked(rows):
    """Rows of a run with --no-verify."""
    assert rows and all(row["verified"] != "false" and not row["skip_reason"] for row in rows)
    return rows


def test_a_loop_keeps_its_input(folder):
    """The launcher must not eat what the loop reads."""
    script = (f"printf '2\\n1\\n2\\n' | while read n; do {RUN} {' '.join(SHORT)} --ranks $n --transport shm --results {folder} "
              f"{' '.join(SHORTEST)} >/dev/null; echo round $n; done")
    result = run(["bash", "-c", script], env=ENV, timeout=200)
    assert result.out.split("\n")[:-1] == ["round 2", "round 1", "round 2"], result
    assert len(started(folder)) == 3


@pytest.mark.parametrize("how", ["closed input", "nohup"])
def test_without_an_input(folder, how):
    words = f"{RUN} {' '.join(SHORT)} --transport shm --results {folder} {' '.join(SHORTEST)}"
    script = f"{words} <&-" if how == "closed input" else f"cd {folder} && nohup {words} & wait $!"
    result = run(["bash", "-c", script], env=ENV, timeout=100)
    assert result.code == 0, result


def test_inside_another_launcher(folder):
    """mpiexec -n 1 run.sh: what the outer launcher left in the environment does not reach the inner one."""
    result = run([find_mpiexec(), "-n", 1, RUN, *SHORT, "--transport", "shm", "--results", folder, *SHORTEST],
                 env={**ENV, "SLURM_NTASKS": 4, "SLURM_PROCID": 0, "SLURM_STEP_ID": 0, "SLURM_JOB_ID": 1}, timeout=100)
    assert result.code == 0, result
    rows = read_rows(started(folder)[0] / "rows.csv")
    assert {row["world"] for row in rows} == {"2"}


def test_two_at_once_have_two_folders(folder):
    commands = [start([RUN, *SHORT, "--transport", "shm", "--results", folder, *SHORTEST], env=ENV) for _ in range(2)]
    texts = [process.communicate(timeout=200) for process in commands]
    assert [process.returncode for process in commands] == [0, 0], texts
    assert len(started(folder)) == 2


def test_a_refused_program_is_the_verdict(folder):
    result = run([RUN, *SHORT, "--model", "gpt9", "--results", folder], env=ENV, timeout=100)
    assert result.code == 2, result
    assert "gpt9" in result.text and "did not run" in result.out


def test_a_closed_pipe_does_not_stop_the_run(folder):
    script = f"{RUN} {' '.join(SHORT)} --transport shm --results {folder} {' '.join(SHORTEST)} | head -n 2 >/dev/null; exit ${{PIPESTATUS[0]}}"
    result = run(["bash", "-c", script], env=ENV, timeout=100)
    assert result.code == 0, result
    assert {row["pattern"] for row in read_rows(started(folder)[0] / "rows.csv")} == set(PATTERNS)


def test_a_signal_ends_it_and_keeps_the_rows(folder):
    process = start([RUN, "--no-install", "--results", folder], env=ENV)
    try:
        deadline = time.monotonic() + 30
        while not any((path / "rows.csv").read_text().count("\n") > 2 for path in started(folder)):
            assert time.monotonic() < deadline, process.poll()
            time.sleep(0.05)
        process.terminate()
        out, err = process.communicate(timeout=20)
    finally:
        end_group(process)
    assert process.returncode == 3, out + err
    assert_all_verified(read_rows(started(folder)[0] / "rows.csv"))


WRONG = [(("--ranks", "0"), "0"), (("--ranks", "two"), "two"), (("--ranks",), "--ranks"), (("--modle", "x"), "--modle"), (("--model",), "--model"),
         (("--launches", "0"), "0"), (("--launches", "many"), "many"), (("--results", "/proc/none", "--no-install"), "/proc/none")]


@pytest.mark.parametrize("options,word", WRONG)
def test_wrong_options(options, word):
    result = run([RUN, *options], env=ENV, timeout=60)
    assert result.code == 2 and word in result.err and len(result.err.splitlines()) == 1, result


def test_help():
    result = run([RUN, "--help"])
    assert result.code == 0
    for option in ("--ranks", "--transport", "--model", "--quick", "--launches", "--build-only", "--no-install", "Exit codes"):
        assert option in result.out
    assert run([TREE / "scripts" / "test.sh", "--help"]).code == 0


def test_says_what_is_missing_where_it_may_not_install(folder):
    """Without root and without sudo: the packages, and the command for root."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    script = (f". {TREE}/scripts/setup.sh; sudo() {{ return 1; }}; install_packages weft-no-such-package bash")
    result = run(["setpriv", "--reuid=65534", "--clear-groups", "bash", "-c", script])
    assert result.code == 2 and "apt-get install weft-no-such-package" in result.err and "bash" not in result.err.split("install")[-1]
