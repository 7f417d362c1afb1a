"""Freed memory is kept for the next batch: page faults are counted, so that no clock is needed."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import torch
from fedloom.engines.malloc import blocks_returned, keep_freed_memory, return_large_blocks
torch.set_num_threads(1)
if sys.argv[1] != "as it is":
    keep_freed_memory()
if sys.argv[1] == "returned":
    return_large_blocks()
if sys.argv[1] in ("loading", "loaded"):
    loading = blocks_returned()
    loading.__enter__()
if sys.argv[1] == "loaded":
    loading.__exit__(None, None, None)
def batch():
    return [torch.ones(10_000_000) for _ in range(4)]  # 40 MB each: glibc would not keep it
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def ten_batches():
    before = faults()
    for _ in range(10):
        batch()
    return faults() - before
# The heap may still grow once, by a block that does not fit into a gap: the best of three counts.
print(min(ten_batches() for _ in range(3)))
"""


RESIDENT = """
import sys
import torch
from fedloom.engines.malloc import keep_freed_memory, return_free_pages
def pages():
    return int(open("/proc/self/statm").read().split()[1])
if sys.argv[1] == "kept":
    keep_freed_memory()
blocks = [torch.ones(1_000_000) for _ in range(40)]  # 4 MB each
del blocks[::2]  # every second one: gaps
before = pages()
return_free_pages()
print(before - pages())
"""


def printed(script: str, how: str) -> int:
    ran = subprocess.run(
        [sys.executable, "-c", script, how], capture_output=True, text=True, check=True
    )
    return int(ran.stdout)


def faults(how: str) -> int:
    return printed(FAULTS, how)


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux")
def test_batches_after_the_first_cause_no_page_faults() -> None:
    assert faults("kept") < 100
    assert (
        faults("as it is") > 10_000
    )  # the control: without the setting, every batch has page faults


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux")
def test_blocks_of_large_models_can_be_returned() -> None:
    assert faults("returned") > 10_000


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux")
def test_blocks_are_returned_only_while_data_are_loaded() -> None:
    assert faults("loading") > 10_000
    assert faults("loaded") < 100


@pytest.mark.skipif(sys.platform != "linux", reason="pages are counted on Linux")
def test_gaps_between_blocks_are_returned_on_request_if_the_process_is_ours() -> None:
    assert printed(RESIDENT, "kept") > 15_000  # 20 gaps of 4 MB are 19,531 pages of 4 KiB
    assert printed(RESIDENT, "as it is") < 100
