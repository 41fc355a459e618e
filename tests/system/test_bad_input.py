# label: mpi
"""Bad input: exit code 2, one line that names cause and remedy, nothing measured, nothing spoilt."""
import pytest

from harness import PATTERNS, QUICK, error_lines, mpiexec, program, read_rows, run


def refused(result, *words):
    """Exit code 2, said once, with these words in it."""
    assert result.code == 2, result
    assert not result.timed_out and result.seconds < 30
    lines = error_lines(result)
    telling = [line for line in lines if all(word.lower() in line.lower() for word in words)]
    assert len(telling) == 1, f"wanted one line with {words}\n{result}"
    assert "terminate called" not in result.text and "Abort" not in result.text, result
    return telling[0]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_unknown_transport(folder, pattern):
    csv = folder / "r.csv"
    refused(mpiexec(2, pattern, "--transport", "mpi,carrier-pigeon", *QUICK, "--csv", csv), "carrier-pigeon", "mpi", "shm")
    assert not csv.exists() or not read_rows(csv)


def test_unknown_algorithm(folder):
    refused(mpiexec(2, "row-allreduce", "--algorithm", "rign", *QUICK, "--csv", folder / "r.csv"), "rign", "ring")


def test_an_algorithm_that_no_measured_transport_has(folder):
    """Never its default in place of it, without a word. Beside a transport that has it, the others are measured for comparison."""
    refused(mpiexec(2, "row-allreduce", "--transport", "mpi", "--algorithm", "ring", *QUICK, "--csv", folder / "r.csv"), "'ring'", "mpi", "shm")
    result = mpiexec(2, "row-allreduce", "--transport", "mpi,shm", "--algorithm", "ring", *QUICK, "--csv", folder / "both.csv")
    assert result.code == 0, result
    assert {(row["transport"], row["algorithm"]) for row in read_rows(folder / "both.csv")} == {("mpi", "default"), ("shm", "ring")}


def test_unknown_model(folder):
    refused(mpiexec(2, "tp-allgather", "--model", "gpt9", "--csv", folder / "r.csv"), "gpt9", "gpt2-small")


def test_unknown_words(folder):
    for option, value in (("--dtype", "f64"), ("--phase", "sleep"), ("--order", "tp-tp-ep-dp-pp"), ("--schedule", "fast"),
                          ("--precision", "two"), ("--scene", "S99"), ("--ranks-per-host", "x"), ("--inject", "melt:1")):
        pattern = "pp-sendrecv" if option == "--schedule" else "tp-allgather"
        result = mpiexec(2, pattern, option, value, *QUICK, "--csv", folder / "r.csv")
        assert result.code == 2 and value in result.err, result


def test_unknown_option(folder):
    refused(mpiexec(2, "tp-allgather", "--modle", "tiny", "--csv", folder / "r.csv"), "--modle")


def test_layout_that_does_not_fit_the_ranks(folder):
    for pattern, options, words in (("tp-allgather", ("--tp", 3, "--dp", 2), ("6", "4")), ("moe-alltoall", ("--ep", 3), ("3", "4")),
                                    ("pp-sendrecv", ("--pp", 8), ("8", "4")), ("tp-allgather", ("--tp", 0), ("0",)),
                                    ("dp-gradsync", ("--dp", 2), ("2", "4"))):
        refused(mpiexec(4, pattern, *options, *QUICK, "--csv", folder / "r.csv"), *words)


def test_widths_and_experts_that_do_not_divide(folder):
    """Experts, choices, stages, and tokens under sequence parallelism; a width may fall unevenly on the ranks."""
    refused(mpiexec(3, "row-allreduce", "--sequence-parallel", "--seq", 32, *QUICK, "--csv", folder / "r.csv"), "32", "3")
    refused(mpiexec(3, "moe-alltoall", *QUICK, "--csv", folder / "r.csv"), "8", "3")
    refused(mpiexec(2, "moe-alltoall", "--top-k", 9, *QUICK, "--csv", folder / "r.csv"), "9", "8")
    refused(mpiexec(3, "pp-sendrecv", "--layers", 2, *QUICK, "--csv", folder / "r.csv"), "2", "3")


def test_a_model_larger_than_memory_is_refused_before_allocating(folder):
    csv = folder / "r.csv"
    result = mpiexec(2, "dp-gradsync", "--model", "llama3-405b", "--csv", csv, timeout=30)
    line = refused(result, "needs", "free")
    assert "GiB" in line or "GB" in line, line
    assert all(row["skip_reason"] for row in read_rows(csv)) if csv.exists() else True
    assert result.seconds < 10, "it took time to find out"


def test_a_csv_that_cannot_be_written(folder):
    for path in (folder / "none" / "r.csv", "/proc/r.csv", folder):
        refused(mpiexec(2, "tp-allgather", *QUICK, "--csv", path), str(path))


def test_a_csv_of_another_schema_is_left_alone(folder):
    csv = folder / "r.csv"
    for content in ("schema,launch_id,cell_id\nweft-0,1,2\n", "time,value\n1,2\n", "a photograph"):
        csv.write_text(content)
        refused(mpiexec(2, "tp-allgather", *QUICK, "--csv", csv), str(csv), "schema")
        assert csv.read_text() == content


@pytest.mark.parametrize("content,words", [
    ("1,2\n3\n", ("line 2",)),
    ("1,x\n3,4\n", ("line 1", "x")),
    ("1,2\n3,-4\n", ("line 2", "-4")),
    ("", ()),
    ("1,2\n3,1e400\n", ("line 2",)),
    ("1,2\n3,99999999999999999999\n", ("line 2",)),
])
def test_a_malformed_token_matrix(folder, content, words):
    matrix = folder / "matrix.csv"
    matrix.write_text(content)
    refused(mpiexec(2, "moe-alltoall", "--ep", 2, "--token-matrix", matrix, *QUICK, "--csv", folder / "r.csv"), str(matrix), *words)


def test_a_token_matrix_of_another_size(folder):
    matrix = folder / "matrix.csv"
    matrix.write_text("1,2,3\n4,5,6\n7,8,9\n")
    refused(mpiexec(2, "moe-alltoall", "--ep", 2, "--token-matrix", matrix, *QUICK, "--csv", folder / "r.csv"), "3 x 3", "2")


def test_a_token_matrix_that_is_not_there(folder):
    refused(mpiexec(2, "moe-alltoall", "--ep", 2, "--token-matrix", folder / "no.csv", *QUICK, "--csv", folder / "r.csv"), "no.csv")


def test_a_broken_config_file(folder):
    config = folder / "c.toml"
    config.write_text("transport = [\n")
    result = mpiexec(2, "tp-allgather", "--config", config, "--csv", folder / "r.csv")
    assert result.code == 2, result
    assert mpiexec(2, "tp-allgather", "--config", folder / "no.toml", "--csv", folder / "r.csv").code == 2


def test_a_layout_without_a_launcher(folder):
    """--tp 4 on one rank: says how to start four."""
    refused(run([program("tp-allgather"), "--tp", 4, *QUICK, "--csv", folder / "r.csv"]), "4", "mpiexec")


@pytest.mark.parametrize("promise", [
    {"SLURM_NTASKS": 4, "SLURM_PROCID": 0, "SLURM_STEP_ID": 0, "SLURM_JOB_ID": 7},
    {"OMPI_COMM_WORLD_SIZE": 4, "OMPI_COMM_WORLD_RANK": 0},
    {"PMI_SIZE": 4, "PMI_RANK": 0},
    {"PMIX_RANK": 0, "OMPI_COMM_WORLD_SIZE": 4},
])
def test_a_launcher_that_promised_more_ranks(folder, promise):
    csv = folder / "r.csv"
    result = run([program("tp-allgather"), *QUICK, "--csv", csv], env=promise)
    line = refused(result, "4", "1", "mpiexec")
    assert "srun --mpi=pmi2" in line
    assert not csv.exists() or not read_rows(csv)


def test_help_and_version():
    for pattern in PATTERNS:
        result = run([program(pattern), "--help"])
        assert result.code == 0
        for option in ("--transport", "--algorithm", "--model", "--sizes", "--csv", "--flows", "--show-plan", "--timeout"):
            assert option in result.out, f"{pattern}: {option} is not in the help"
        assert "--inject" not in result.out
        assert run([program(pattern), "--version"]).code == 0


@pytest.mark.parametrize("option,value", [
    ("--elephant", "0"), ("--elephant", "big"), ("--elephant", "-1"), ("--link-rate", "0"), ("--link-rate", "fast"), ("--link-rate", "-10"),
    ("--link-rate", "1e9"), ("--paths", "0"), ("--paths", "x"), ("--paths", "99999999999"), ("--ecmp-hash", "md5"), ("--qps", "0"),
])
def test_figures_that_make_no_sense(folder, option, value):
    refused(mpiexec(2, "tp-allgather", f"{option}={value}", *QUICK, "--csv", folder / "r.csv"), option)
    assert not (folder / "r.csv").exists() or not read_rows(folder / "r.csv")


@pytest.mark.parametrize("option", ["--trace", "--traffic", "--samples", "--flows", "--json"])
def test_other_files_that_cannot_be_written(folder, option):
    for path in (folder / "none" / "x", folder):
        refused(mpiexec(2, "tp-allgather", option, path, *QUICK, "--csv", folder / "r.csv"), "cannot write", str(path))
    refused(mpiexec(2, "tp-allgather", option, folder / "same", *QUICK, "--csv", folder / "same"), "two outputs", option)
