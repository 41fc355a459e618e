# label: unit
"""scripts/weft-compare: verdicts that hold their error rates, and data that is missing or damaged and never passes.

The simulations go through the functions that the program uses; seeds are fixed."""
import csv
import itertools
import math
import random
import statistics
import sys

import pytest

from harness import TREE, run

sys.path.insert(0, str(TREE / "scripts"))
from weft_analysis import exact, rows, verdicts  # noqa: E402

COMPARE = [sys.executable, TREE / "scripts" / "weft-compare"]
HEAD = "schema,launch_id,cell_id,pattern,phase,t_p50_us,algbw_GBps,noise,verified,skip_reason\n"


# ---- the statistics against enumerations

def test_null_distributions_against_enumeration():
    for n, m in ((3, 3), (4, 6), (7, 3)):
        counts = [sum(a > b for a in chosen for b in set(range(n + m)) - set(chosen))
                  for chosen in itertools.combinations(range(n + m), n)]
        for k, probability in enumerate(exact.mann_whitney_tail(n, m)):
            assert probability == pytest.approx(sum(count <= k for count in counts) / len(counts))
    for n in (3, 6):
        sums = [sum(chosen) for size in range(n + 1) for chosen in itertools.combinations(range(1, n + 1), size)]
        for k, probability in enumerate(exact.signed_rank_tail(n)):
            assert probability == pytest.approx(sum(total <= k for total in sums) / len(sums))


def test_interval_is_where_the_test_stops_rejecting():
    """Moves one side until an enumerated Mann-Whitney test changes its mind: that is the interval's end."""
    base, new = [98.0, 101.0, 99.5, 103.0, 100.2], [104.1, 107.0, 101.9, 109.3, 105.2]
    low, high = exact.RatioEstimate.of(base, new).interval(0.95)

    def rejected(ratio):
        moved = [value / ratio for value in new]
        below = sum(b < a for a in base for b in moved)
        everything = [sum(x > y for x in chosen for y in set(range(10)) - set(chosen)) for chosen in itertools.combinations(range(10), 5)]
        extreme = min(below, 25 - below)
        return 2 * sum(count <= extreme for count in everything) / len(everything) <= 0.05

    for end, outward in ((low, 0.9999), (high, 1.0001)):
        assert rejected(end * outward) and not rejected(end / outward)
    assert exact.RatioEstimate.of(base, new).ratio == pytest.approx(statistics.median(b / a for a in base for b in new))


def test_holm_by_hand():
    assert exact.holm([0.01, 0.04, 0.03, 0.005], 0.05) == [
        (True, 0.05 / 3), (False, 0.025), (False, 0.025), (True, 0.0125)]
    assert exact.holm([], 0.05) == []


def test_fewest_launches():
    assert exact.launches_needed(0.05, paired=False) == 4 and exact.launches_needed(0.05, paired=True) == 6
    assert exact.RatioEstimate.of([1, 2, 3], [4, 5, 6]).interval(0.95) == (0, math.inf)
    assert exact.RatioEstimate.of([1, 2, 3], [4, 5, 6]).interval(0.9) == (pytest.approx(4 / 3), pytest.approx(6))


# ---- error rates

def normal(rng):
    return rng.gauss(0, 0.02)


def skewed(rng):
    """Now and then much slower."""
    return abs(rng.gauss(0, 0.02)) + (rng.expovariate(5) if rng.random() < 0.1 else 0)


def two_modes(rng):
    """A launch gets good memory or bad."""
    return rng.choice((0.0, 0.1)) + rng.gauss(0, 0.001)


NOISES = (normal, skewed, two_modes)


@pytest.mark.parametrize("paired", [False, True])
def test_coverage_of_the_interval(paired):
    """The true ratio lies in the 95% interval in at least 95% of cases (less four standard errors), for any noise."""
    rng, times = random.Random(1), 400
    for launches, noise in itertools.product((6, 9, 30), NOISES):
        inside = 0
        for _ in range(times):
            base, new = ([factor * math.exp(noise(rng)) for _ in range(launches)] for factor in (100, 107))
            low, high = (exact.RatioEstimate.of_pairs if paired else exact.RatioEstimate.of)(base, new).interval(0.95)
            inside += low <= 1.07 <= high
        assert inside / times >= 0.95 - 4 * math.sqrt(0.05 * 0.95 / times), (launches, noise.__name__)


def simulated(rng, cells, launches, noise, factor=1.0, side="a", together=0.0, drift=0.0):
    """A RowSet: cells whose launches vary by `noise`, and all cells of a launch by `together`; `drift` a launch."""
    made = rows.RowSet("t_p50_us")
    for launch in range(launches):
        launch_id = f"{side}{launch:015x}"
        started = (f"2026-01-01T00:{2 * launch + (side == 'b'):02}:00Z", 0)
        made.launches[launch_id] = rows.Launch(launch_id, "p", launch + 1, started)
        common = rng.gauss(0, together) + drift * (2 * launch + (side == "b"))
        for cell in range(cells):
            value = (10 + cell) * factor * math.exp(noise(rng) + common)
            made.cells.setdefault(f"cell-{cell}", {})[launch_id] = rows.Reading(values=[value])
    return made


def counted(results):
    return [sum(result.verdict == verdict for result in results) for verdict in verdicts.VERDICTS]


@pytest.mark.parametrize("paired,launches", [(False, 9), (False, 4), (True, 12)])
def test_no_difference_is_seldom_called_one(paired, launches):
    """A/A: 210 comparisons of 12 cells each call any cell regressed no more often than alpha, whatever the noise, with and
    without a common factor of all cells of a launch, on a machine that becomes slower while both sides run in turn."""
    rng = random.Random(2)
    rules = verdicts.Rules(paired=paired)
    wrong = 0
    for trial in range(210):
        noise, together, drift = NOISES[trial % 3], (0, 0.02)[trial % 2], (0, 0.002)[trial // 2 % 2]
        base, new = (simulated(rng, 12, launches, noise, side=side, together=together, drift=drift) for side in "ab")
        wrong += counted(verdicts.compare(base, new, rules))[0] > 0
    assert wrong / 210 <= rules.alpha


def test_no_difference_without_a_threshold():
    """The test alone, without the least effect that hides small differences, keeps alpha as well."""
    rng, rules = random.Random(3), verdicts.Rules(threshold=1e-9)
    wrong = 0
    for trial in range(300):
        base, new = (simulated(rng, 10, 9, NOISES[trial % 3], side=side) for side in "ab")
        results = counted(verdicts.compare(base, new, rules))
        wrong += results[0] + results[4] > 0
    assert wrong / 300 <= rules.alpha + 2 * math.sqrt(0.05 * 0.95 / 300)


def test_finds_a_slow_down_of_5_percent():
    """Launches vary by 2%, nine a side: found in at least 95% of cases; all cells of a slower build, and by itself."""
    rng = random.Random(4)
    for cells, times in ((1, 1000), (20, 50)):
        found = sum(counted(verdicts.compare(simulated(rng, cells, 9, normal), simulated(rng, cells, 9, normal, 1.05, "b"),
                                             verdicts.Rules()))[0] for _ in range(times))
        assert found / (cells * times) >= 0.95, cells


def test_what_is_called_detectable_is_detected():
    """In about four of five cases."""
    rng = random.Random(5)
    for cells in (1, 30):
        rules = verdicts.Rules()
        promised = statistics.median(result.detectable for _ in range(5) for result in verdicts.compare(
            simulated(rng, cells, 9, normal), simulated(rng, cells, 9, normal, side="b"), rules))
        found = 0
        for _ in range(300):
            base, new = ([100 * f * math.exp(normal(rng)) for _ in range(9)] for f in (1, promised))
            estimate = exact.RatioEstimate.of(base, new)
            found += estimate.p_value <= 0.05 / cells and estimate.ratio >= 1.03
        assert 0.65 <= found / 300 <= 0.97, (cells, promised, found)


def test_pairs_see_through_drift():
    """The machine becomes 1% slower with each launch: 4% are found in pairs, and not without."""
    rng = random.Random(6)
    base, new = (simulated(rng, 1, 12, lambda r: r.gauss(0, 0.003), factor, side, drift=0.01) for factor, side in ((1, "a"), (1.04, "b")))
    assert verdicts.compare(base, new, verdicts.Rules(paired=True))[0].verdict == "regressed"
    assert verdicts.compare(base, new, verdicts.Rules())[0].verdict == "inconclusive"


def test_swapping_the_sides_swaps_the_verdicts():
    rng = random.Random(7)
    base, new = simulated(rng, 5, 9, normal), simulated(rng, 5, 9, normal, 1.06, "b")
    swap = {"regressed": "improved", "improved": "regressed"}
    forward = {r.cell_id: r.verdict for r in verdicts.compare(base, new, verdicts.Rules())}
    back = {r.cell_id: r.verdict for r in verdicts.compare(new, base, verdicts.Rules())}
    assert back == {cell: swap.get(verdict, verdict) for cell, verdict in forward.items()} and "regressed" in forward.values()


# ---- the program

def line(launch, cell, value, *, pattern="p", rate="", noise="", verified="true", reason="", schema="weft-2"):
    return f'{schema},{launch},"{cell}",{pattern},comm,{value},{rate},{noise},{verified},{reason}\n'


def side(path, letter, factor=1.0, launches=9, cells=("p/comm/8B", "p/comm/64B"), extra=(), head=HEAD, **more):
    """Writes launches with a fixed spread of about 1%; returns the path."""
    rng = random.Random(ord(letter))
    lines = [line(f"{letter}{i:015}", cell, f"{100 * factor * (1 + rng.uniform(-0.015, 0.015)):.6g}", **more)
             for i in range(launches) for cell in cells]
    path.write_text(head + "".join([*lines, *extra]), encoding="utf-8")
    return path


def compare(*words, **more):
    return run([*COMPARE, *words], timeout=60, **more)


def verdict_of(result, cell):
    """The words of a cell's line."""
    (found,) = [text for text in result.out.splitlines() if cell in text and text.split()[0] in verdicts.VERDICTS]
    return found.split()[0]


def test_verdicts_and_exit_codes(folder):
    base = side(folder / "base.csv", "a")
    for factor, verdict, code in ((1, "same", 0), (1.06, "regressed", 1), (0.94, "improved", 0), (1.029, "inconclusive", 3)):
        result = compare(base, side(folder / "new.csv", "b", factor))
        assert (result.code, verdict_of(result, "p/comm/8B")) == (code, verdict), result
        assert f"2 {verdict}" in result.out


def test_the_worst_comes_first(folder):
    base = side(folder / "base.csv", "a", cells=("slow", "same"), extra=[line(f"a{i:015}", "fast", 50 + i) for i in range(9)])
    new = side(folder / "new.csv", "b", cells=("same",),
               extra=[line(f"b{i:015}", cell, value + i / 10) for i in range(9) for cell, value in (("slow", 120), ("fast", 20))])
    result = compare(base, new)
    order = [text.split()[0] for text in result.out.splitlines() if text.split()[:1] and text.split()[0] in verdicts.VERDICTS]
    assert result.code == 1 and order == ["regressed", "same", "improved"], result


def test_rates_are_better_when_higher(folder):
    def write(name, letter, rate):
        return side(folder / name, letter, 1, cells=(),
                    extra=[line(f"{letter}{i:015}", "cell", 1, rate=rate * (1 + i / 1000)) for i in range(9)])
    base, slower, faster = write("a.csv", "a", 10), write("b.csv", "b", 9), write("c.csv", "c", 11)
    assert compare(base, slower, "--metric", "algbw_GBps").code == 1
    assert compare(base, faster, "--metric", "algbw_GBps").code == 0
    assert compare(base, faster, "--metric", "algbw_GBps", "--better", "less").code == 1


MISSING = {  # what NEW has of the cell, and what the table says
    "not in NEW": lambda i: [],
    "wrong results": lambda i: [line(f"b{i:015}", "cell", "", verified="false", reason="rank 1 element 3")],
    "skipped": lambda i: [line(f"b{i:015}", "cell", "", verified="", reason="not a power of two")],
    "no valid samples": lambda i: [line(f"b{i:015}", "cell", "nan" if i % 2 else "")],
    "2 of 3 launches": lambda i: [line(f"b{i:015}", "cell", 100)] if i < 2 else [],
}


def test_what_is_missing_never_passes(folder):
    base = side(folder / "base.csv", "a", cells=("cell", "other"))
    for words, lines in MISSING.items():
        new = side(folder / "new.csv", "b", cells=("other",), extra=[text for i in range(9) for text in lines(i)])
        result = compare(base, new)
        assert result.code == 3 and verdict_of(result, " cell") == "missing" and words in result.out, (words, result)
        assert compare(new, base).code == 3, words


def test_one_wrong_result_of_nine_is_enough(folder):
    base = side(folder / "base.csv", "a")
    new = side(folder / "new.csv", "b", extra=[line("b" + "9" * 15, "p/comm/8B", "", verified="false", reason="rank 0")])
    result = compare(base, new)
    assert result.code == 3 and verdict_of(result, "p/comm/8B") == "missing", result


def test_a_missing_cell_does_not_hide_a_regression(folder):
    result = compare(side(folder / "a.csv", "a", cells=("x", "y")), side(folder / "b.csv", "b", 1.1, cells=("x",)))
    assert result.code == 1 and "1 regressed, 1 missing" in result.out, result


def test_torn_lines_are_named_and_left_out(folder):
    base = side(folder / "base.csv", "a")
    torn = line("b" + "8" * 15, "p/comm/8B", 99999)
    new = side(folder / "new.csv", "b", extra=[torn[:25] + "\n", line("b" + "7" * 15, "p/comm/8B", 100.1), "\0\0\0\n", torn[:40]])
    result = compare(base, new)
    assert result.code == 0 and "99999" not in result.out, result
    assert "10/9" not in result.out and "9/10" in result.out, "the whole row behind a torn one counts"
    for number in (20, 22, 23):
        assert f"new.csv:{number}:" in result.out, result


def test_byte_order_mark_crlf_and_another_order_of_columns(folder):
    base = side(folder / "base.csv", "a")
    new = side(folder / "new.csv", "b")
    table = list(csv.reader(new.read_text().splitlines()))
    shuffled = "\r\n".join(",".join(row[::-1]) for row in table) + "\r\n"
    new.write_bytes(b"\xef\xbb\xbf" + shuffled.encode())
    assert compare(base, new).code == 0


def test_foreign_locale(folder):
    base, new = side(folder / "base.csv", "a"), side(folder / "new.csv", "b")
    one = compare(base, new)
    for value in ("de_DE.UTF-8", "C", "tr_TR.ISO-8859-9"):
        other = compare(base, new, env={"LC_ALL": value, "PYTHONIOENCODING": "ascii"})
        assert (other.code, other.out) == (0, one.out), other


def test_schemas_are_read_by_name(folder):
    base = side(folder / "base.csv", "a", schema="weft-1")
    head = HEAD.replace("t_p50_us", "t_min_us,t_p50_us")
    new = folder / "new.csv"
    new.write_text(head + "".join(line(f"b{i:015}", cell, f"1,{100 + i / 10}") for i in range(9) for cell in ("p/comm/8B", "p/comm/64B")))
    result = compare(base, new)
    assert result.code == 0 and "BASE weft-1, NEW weft-2" in result.out, result


def test_other_conditions_are_remarked(folder):
    """The same cell, once with a common start by the clock and once by a barrier."""
    head = HEAD.replace("noise", "sync,noise")
    base = side(folder / "base.csv", "a", head=head, rate=",clock")
    new = side(folder / "new.csv", "b", head=head, rate=",barrier")
    result = compare(base, new)
    assert result.code == 0 and "sync differs: BASE clock, NEW barrier (2 cells)" in result.out, result


def test_joined_files_may_repeat_the_header(folder):
    base, new = side(folder / "base.csv", "a"), side(folder / "new.csv", "b")
    both = folder / "both.csv"
    both.write_text(base.read_text() + new.read_text())
    result = compare(f"{both}@1-9", f"{both}@10-18")
    assert result.code == 0 and "9/9" in result.out, result
    assert compare(f"{both}@a", f"{both}@b").out == result.out


def test_launches_in_turn_in_one_file(folder):
    lines = [line(f"{'ab'[i % 2]}{i:015}", "cell", 100 + 10 * (i % 2) + i / 100, pattern=pattern) for i in range(18) for pattern in "p"]
    path = folder / "rows.csv"
    path.write_text(HEAD + "".join(lines))
    assert compare(f"{path}@odd", f"{path}@even").code == 1
    assert compare(f"{path}@even", f"{path}@odd").code == 0
    assert "a000000000000016" in compare("--list", path).out


def test_folders_take_rows_and_nothing_else(folder):
    for name, letter in (("base", "a"), ("new", "b")):
        (folder / name / "run-1").mkdir(parents=True)
        side(folder / name / "run-1" / "rows.csv", letter)
        (folder / name / "run-1" / "flows.csv").write_text("launch_id,cell_id,source\nx,y,1\n")
    assert compare(folder / "base", folder / "new").code == 0
    (folder / "empty").mkdir()
    assert compare(folder / "base", folder / "empty").code == 2


def test_disturbed_rows_count_where_there_are_no_others(folder):
    """A disturbed row beside a quiet one of the same launch is left out; a launch that has only disturbed ones keeps them."""
    base = side(folder / "base.csv", "a", cells=("cell",))
    again = [line(f"b{i:015}", "cell", 500, noise="load 40%") for i in range(9)]
    result = compare(base, side(folder / "new.csv", "b", cells=("cell",), extra=again))
    assert result.code == 0 and "disturbed" not in result.out, result
    result = compare(base, side(folder / "new.csv", "b", cells=("cell",), noise="load 40%", factor=1.1))
    assert result.code == 1 and "9 of NEW" in result.out, result


def test_sides_that_did_not_run_in_turn_are_remarked(folder):
    base, new = side(folder / "base.csv", "a"), side(folder / "new.csv", "b")

    def started(path, letter, minutes):
        lines = [f'{{"launch_id":"{letter}{i:015}","time_utc":"2026-01-01T00:{minutes[i]:02}:00Z"}}\n' for i in range(9)]
        path.with_name(path.name + ".provenance.jsonl").write_text("".join(lines) + '{"launch_id":"torn')

    started(base, "a", range(9)), started(new, "b", range(20, 29))
    assert "not run in turn" in compare(base, new).out
    started(base, "a", range(0, 18, 2)), started(new, "b", range(1, 18, 2))
    assert "not run in turn" not in compare(base, new).out


def test_the_csv_agrees_with_the_table(folder):
    base, new = side(folder / "base.csv", "a"), side(folder / "new.csv", "b", 1.06)
    compare(base, new, "--csv", folder / "out.csv")
    with open(folder / "out.csv", newline="", encoding="utf-8") as file:
        (one, two) = csv.DictReader(file)
    assert {one["cell_id"], two["cell_id"]} == {"p/comm/8B", "p/comm/64B"}
    for row in (one, two):
        assert row["verdict"] == "regressed" and row["base_launches"] == row["new_launches"] == "9"
        assert 1 < float(row["low"]) <= float(row["low_alone"]) <= float(row["ratio"]) <= float(row["high_alone"]) <= float(row["high"])
        assert float(row["ratio"]) == pytest.approx(float(row["new_median"]) / float(row["base_median"]), rel=0.02)


def test_only_some_cells(folder):
    base, new = side(folder / "base.csv", "a"), side(folder / "new.csv", "b", 1.06)
    assert "1 regressed" in compare(base, new, "--cells", "*/8B").out
    assert "1 regressed" in compare(base, new, "--cells", "!*/8B").out
    result = compare(base, new, "--cells", "nothing")
    assert result.code == 2 and "p/comm/" in result.err


WRONG = [  # arguments, words of the one line
    (("none.csv", "base.csv"), "none.csv"),
    (("base.csv",), "BASE and NEW"),
    (("base.csv", "base.csv"), "both sides"),
    (("base.csv", "empty.csv"), "empty.csv"),
    (("base.csv", "head.csv"), "head.csv"),
    (("base.csv", "torn.csv"), "torn.csv"),
    (("base.csv", "flows.csv"), "no column schema"),
    (("base.csv", "excel.csv"), "excel.csv:1"),
    (("base.csv", "comma.csv"), "comma.csv:2: column t_p50_us has '1,5'"),
    (("base.csv", "new.csv", "--metric", "t_p5_us"), "t_p5_us"),
    (("base.csv", "new.csv", "--metric", "phase"), "--better"),
    (("base.csv", "new.csv", "--threshold", "5"), "'5'"),
    (("base.csv", "new.csv", "--wrong"), "--wrong"),
    (("base.csv", "new.csv", "--csv", "/proc/none/x"), "/proc/none/x"),
    (("base.csv@20-30", "new.csv"), "20-30"),
    (("--base", "base.csv"), "--new"),
    (("base.csv", "binary.csv"), "binary.csv"),
]


def test_wrong_usage_is_one_line_and_exit_2(folder):
    side(folder / "base.csv", "a"), side(folder / "new.csv", "b")
    for name, text in {"empty": "", "head": HEAD, "torn": HEAD + "weft-2,b\n", "flows": "launch_id,cell_id,source\na,b,1\n",
                       "excel": HEAD.replace(",", ";"), "comma": HEAD + line("b" * 16, "p/comm/8B", '"1,5"')}.items():
        (folder / f"{name}.csv").write_text(text)
    (folder / "binary.csv").write_bytes(bytes(range(256)) * 20)
    for words, expected in WRONG:
        result = compare(*words, cwd=folder)
        assert result.code == 2 and expected in result.err and len(result.err.splitlines()) == 1, (words, result)


def test_a_closed_pipe_is_no_crash(folder):
    side(folder / "base.csv", "a"), side(folder / "new.csv", "b")
    result = run(["bash", "-c", f"{sys.executable} {COMPARE[1]} base.csv new.csv | true"], cwd=folder)
    assert "Traceback" not in result.err, result


def test_large_files_are_streamed(folder):
    """60 MB of rows in less than 100 MB of memory."""
    base = side(folder / "base.csv", "a")
    path = folder / "large.csv"
    blank = "x" * 600
    with open(path, "w", encoding="utf-8") as file:
        file.write(HEAD.replace("phase", "phase,more"))
        for i in range(100_000):
            file.write(f"weft-2,b{i % 9:015},cell-{i % 50},p,comm,{blank},{100 + i % 7},,,true,\n")
    script = ("import resource, runpy, sys\nresource.setrlimit(resource.RLIMIT_AS, (150 << 20, 150 << 20))\n"
              "sys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n")
    result = run([sys.executable, "-c", script, COMPARE[1], base, path], timeout=60, cwd=TREE / "scripts")
    assert result.code == 3 and "52 missing" in result.out, result


def test_help():
    result = compare("--help")
    assert result.code == 0
    for word in ("--base", "--new", "--threshold", "--alpha", "--paired", "--csv", "--cells", "--metric", "@odd", "Exit code"):
        assert word in result.out
