# label: unit
"""scripts/nodelist.py: Slurm host lists, the readable ones and those that must be refused."""
import sys

import pytest

from harness import TREE, run

NODELIST = [sys.executable, TREE / "scripts" / "nodelist.py"]

GOOD = [  # list, count, first, last
    ("host009", 1, "host009", "host009"),
    ("gpu-a-[1-2]", 2, "gpu-a-1", "gpu-a-2"),
    ("c[1-2]", 2, "c1", "c2"),
    ("cpn-m11-16", 1, "cpn-m11-16", "cpn-m11-16"),
    ("rack[0-1]-n[08-10]", 6, "rack0-n08", "rack1-n10"),
    ("rack[0-1]_n[0-1]", 4, "rack0_n0", "rack1_n1"),
    ("nA,nB[001,003],nC", 4, "nA", "nC"),
    ("rack[0-1]-n[08-10],login,gpu-a-[3,5-6]", 10, "rack0-n08", "gpu-a-6"),
    ("n[1-2].cl-x.example", 2, "n1.cl-x.example", "n2.cl-x.example"),
    ("host-[001-002]", 2, "host-001", "host-002"),
    ("a[1-2][3-4]b[05,7]", 8, "a13b05", "a24b7"),
    ("n[0-99999]", 100_000, "n0", "n99999"),
    ("0012", 1, "0012", "0012"),
    ("n[99-101]", 3, "n99", "n101"),
]
BAD = ["n[3-1]", "n[1-2", "", "n1-2]", "n[[1-2]]", "n[1-2],", ",n1", "n1,,n2", "n[]", "n[1,]", "n[a-b]", "n[1-2-3]", "n[-1]",
       "n[1:2]", "n[8-010]", "n[008-10]", "n1 n2", "n[0-99999999999]", "r[0-9999][0-9999]", "n[1-2]\n", "$(reboot)"]


@pytest.mark.parametrize("text,count,first,last", GOOD)
def test_expands(text, count, first, last):
    result = run([*NODELIST, text])
    names = result.out.split("\n")[:-1]
    assert (result.code, len(names), names[0], names[-1]) == (0, count, first, last)
    assert len(set(names)) == count
    assert run([*NODELIST, "--count", text]).out == f"{count}\n"


@pytest.mark.parametrize("text", BAD)
def test_refuses_and_quotes(text):
    result = run([*NODELIST, text])
    assert result.code == 2 and not result.out
    assert f"'{text}'" in result.err


def test_order_is_slurms():
    names = run([*NODELIST, "r[0-1]n[08,10-11]"]).out.split()
    assert names == ["r0n08", "r0n10", "r0n11", "r1n08", "r1n10", "r1n11"]


def test_coverage_names_hosts_without_rows(folder):
    rows = folder / "rows.csv"
    rows.write_text("cell_id,host_names\na,n1.cl.example n2\nb,n2 n3.cl.example\n")
    fine = run([*NODELIST, "n[1-2]", "--covered", rows])
    assert fine.code == 0 and "hosts asked for: 2, with rows: 2" in fine.out
    # A short and a full name are one host; two full names of different domains are not.
    short = run([*NODELIST, "n[1-2],n3.other.example,n5", "--covered", rows])
    assert short.code == 1 and "no rows from: n3.other.example, n5" in short.out


def test_coverage_of_a_run_without_rows(folder):
    rows = folder / "rows.csv"
    rows.write_text("cell_id,host_names\n")
    assert run([*NODELIST, "n1", "--covered", rows]).code == 1
    assert run([*NODELIST, "n1", "--covered", folder / "none.csv"]).code == 2
