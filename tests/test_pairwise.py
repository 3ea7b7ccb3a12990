"""The design that the contracts of options are drawn from."""

from itertools import combinations, product

import pytest

from contracts.pairwise import all_pairs


@pytest.mark.parametrize("sizes", [(2,), (1, 1), (2, 3), (3, 3, 3, 3), (2, 5, 4, 3, 2, 2, 6), (2,) * 12])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_two_values_of_two_options_meet(sizes, seed):
    options = {f"o{k}": [object() for _ in range(size)] for k, size in enumerate(sizes)}
    rows = all_pairs(options, seed)
    for one, other in combinations(options, 2):
        met = {(id(row[one]), id(row[other])) for row in rows}
        assert met == {(id(x), id(y)) for x, y in product(options[one], options[other])}
    for name, values in options.items():
        assert {id(row[name]) for row in rows} == set(map(id, values))
    assert rows == all_pairs(options, seed)


def test_what_is_not_allowed_is_not_drawn_and_all_else_still_meets():
    options = {"o0": range(3), "o1": range(4), "o2": range(3)}
    rows = all_pairs(options, allowed=lambda row: not (row["o0"] == 1 and row["o1"] < 3))
    met = {(row["o0"], row["o1"]) for row in rows}
    assert met == set(product(range(3), range(4))) - {(1, 0), (1, 1), (1, 2)}
    assert {(row["o0"], row["o2"]) for row in rows} == set(product(range(3), range(3)))


def test_far_fewer_combinations_than_all_of_them():
    rows = all_pairs({f"o{k}": range(3) for k in range(10)})
    assert 9 <= len(rows) <= 25


def test_an_option_without_values_is_refused():
    with pytest.raises(ValueError, match="at least one value"):
        all_pairs({"a": [1], "b": []})
