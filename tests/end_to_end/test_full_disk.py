"""Commands on a disk that is too small say so in one line, keep what is finished, and complete when there is space.

``make fuzz`` tries 20 sizes for every command that writes; these are a few of them.
"""

import pytest

pytest.importorskip("transformers")

from fuzz.commands import WRITING
from fuzz.full_disk import Mounted, counted, disk_problem, mounted, undisturbed


@pytest.fixture(params=[mounted, counted])
def disk(request):
    try:
        with request.param() as found:
            yield found
    except PermissionError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("command", WRITING)
def test_a_full_disk_is_one_line_and_costs_nothing_that_was_finished(command, disk):
    wanted, used = undisturbed(command, disk)
    share = 0.3 if isinstance(disk, Mounted) else 0.7
    assert disk_problem(command, disk, int(share * used), wanted) == ""


def test_nothing_fits_at_all(disk):
    wanted, _ = undisturbed("capture", disk)
    assert disk_problem("capture", disk, 0, wanted) == ""
