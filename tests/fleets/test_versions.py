"""Arrays in several versions: each reads as it was, whatever was written since, and from where."""

import numpy as np
import pytest

from jboost.fleets.versions import Arrays


@pytest.mark.parametrize("seed", range(5))
def test_every_version_that_is_held_reads_as_it_was(seed):
    """Against plain copies: writes from any version, versions dropped at random, errors."""
    rng = np.random.default_rng(seed)
    arrays = Arrays(wide=np.zeros((4, 3), np.uint32), flat=np.zeros(4, np.int64))
    held = [(arrays.current, {"wide": np.zeros((0, 3), np.uint32), "flat": np.zeros(0, np.int64)})]
    for step in range(200):
        version, copies = held[int(rng.integers(len(held)))]
        copies = {name: copy.copy() for name, copy in copies.items()}
        fails = step % 7 == 3
        try:
            with arrays.changing(version) as change:
                for name in rng.choice(["wide", "flat"], int(rng.integers(1, 4))):
                    copy = copies[name]
                    rows = rng.permutation(len(copy) + 2)[: int(rng.integers(1, len(copy) + 3))]
                    rows = np.union1d(rows, np.arange(len(copy), int(rows.max()) + 1))
                    rng.shuffle(rows)
                    values = rng.integers(0, 99, (len(rows), *copy.shape[1:])).astype(copy.dtype)
                    longer = np.zeros(
                        (max(len(copy), int(rows.max()) + 1), *copy.shape[1:]), copy.dtype
                    )
                    longer[: len(copy)] = copy
                    longer[rows] = values
                    copies[name] = longer
                    change.write(name, rows, values)
                if fails:
                    raise KeyboardInterrupt
            held.append((change.version, copies))
        except KeyboardInterrupt:
            pass
        while len(held) > 6:
            held.pop(int(rng.integers(len(held))))
        for version, copies in held if step % 10 == 0 else held[-1:]:
            with arrays.reading(version):
                for name, copy in copies.items():
                    np.testing.assert_array_equal(arrays[name][: len(copy)], copy)
