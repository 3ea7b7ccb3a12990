"""Every representation of f against the dense equations; the suite is tests/contracts/representation.py."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn

from contracts.representation import (
    KINDS,
    Case,
    M,
    check_pairs_held_out,
    check_preferences_held_out,
    check_rows_held_out,
    check_solution,
)
from preflearn.kernels import NystromMap
from preflearn.kernels.functions import Kernel
from preflearn.progress import Stages
from preflearn.squared.base import Inputs, Representation
from preflearn.squared.representations import (
    FullKernel,
    Iterated,
    IteratedReducedSet,
    Linear,
    PairSpace,
    ReducedSet,
)
from preflearn.squared.routes import Workload, plan

RNG = np.random.default_rng(0)
TALL, WIDE = RNG.normal(size=(M, 5)), RNG.normal(size=(M, 40)) / 3
QUIET = Stages(None)
SINGLE = 2e-3


def rows(name: str):
    """The rows, and the precision that their type allows."""
    X = WIDE if "wide" in name else TALL
    if "sparse" in name:
        X = sp.csr_array(np.where(np.abs(X) > np.median(np.abs(X)), X, 0.0))
    if "offset" in name:
        X = X + 1e3
    return (X.astype(np.float32), SINGLE) if "single" in name else (X, 1e-7)


def reduced(X, kernel: Kernel, **params) -> Inputs:
    basis = np.array([0, 1, 2, 5, 9, 13, 14, 20, 23])
    return Inputs(X, kernel, NystromMap(kernel.kernel, basis=basis, **params).fit_items(X, kernel))


def linear_pairs(inputs, tasks):
    return PairSpace(inputs, tasks, QUIET, by_rows=Linear(inputs, tasks, QUIET))


def kernel_pairs(inputs, tasks):
    return PairSpace(inputs, tasks, QUIET, by_rows=FullKernel(inputs, tasks, QUIET))


def make(kind):
    """One that takes the stages and, where it iterates, a tolerance far below what is compared."""
    options = {"tol": 1e-11} if kind in (Iterated, IteratedReducedSet) else {}
    return lambda inputs, tasks: kind(inputs, tasks, QUIET, **options)


def case(kind, data: str, kernel: str) -> Case:
    X, tolerance = rows(data)
    made = Kernel(kernel, gamma=0.1) if kernel == "rbf" else Kernel(kernel)
    if kernel == "precomputed":
        X = np.asarray(X @ X.T)
    if kind in (ReducedSet, IteratedReducedSet):
        inputs = reduced(X, made, **({"gamma": 0.1} if kernel == "rbf" else {}))
    else:
        inputs = Inputs(X, made)
    if kind is PairSpace:
        return Case(linear_pairs if kernel == "linear" else kernel_pairs, inputs, tolerance)
    if kind in (Iterated, IteratedReducedSet):
        tolerance = max(tolerance, 1e-6)
    return Case(make(kind), inputs, tolerance)


CASES = {
    f"{kind.__name__}, {kernel}, {data}": partial(case, kind, data, kernel)
    for kind, kernels in {
        Linear: ["linear"],
        Iterated: ["linear"],
        FullKernel: ["linear", "rbf", "precomputed"],
        ReducedSet: ["linear", "rbf", "precomputed"],
        IteratedReducedSet: ["rbf"],
        PairSpace: ["linear", "rbf"],
    }.items()
    for kernel in kernels
    for data in ("tall", "wide", "tall sparse", "wide sparse", "tall single", "wide single", "tall offset")
    # Kernel matrices are dense; one of lower rank has negative eigenvalues in single precision, and is refused.
    if not (kernel == "precomputed" and ("sparse" in data or data == "tall single"))
    # An offset is the linear kernel's matter.
    if not ("offset" in data and (kernel != "linear" or kind is ReducedSet))
}
# Rows with a large offset have few digits left for what is not centred.
SEES_OFFSETS = ("regression",)


def cases(*kinds: type[Representation]) -> list[str]:
    return [name for name in CASES if name.startswith(tuple(f"{kind.__name__}," for kind in kinds))]


def skip_what_offsets_drown(name: str, kind: str) -> None:
    if "offset" in name and kind in SEES_OFFSETS:
        pytest.skip("f is made of the offset")


@pytest.mark.parametrize("name", cases(Linear, Iterated, FullKernel, ReducedSet, IteratedReducedSet))
@pytest.mark.parametrize("kind", KINDS)
def test_solutions_and_paths(name, kind):
    skip_what_offsets_drown(name, kind)
    check_solution(CASES[name](), kind, with_mean="offset" not in name)


@pytest.mark.parametrize("name", cases(PairSpace))
@pytest.mark.parametrize("with_mean", [False, True])
def test_solutions_in_the_space_of_pairs(name, with_mean):
    check_solution(CASES[name](), "preferences", with_mean=with_mean and "offset" not in name)


@pytest.mark.parametrize("name", cases(Linear, Iterated, FullKernel, ReducedSet))
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "preferences"])
def test_rows_held_out(name, kind):
    skip_what_offsets_drown(name, kind)
    check_rows_held_out(CASES[name](), kind)


@pytest.mark.parametrize("name", cases(Linear, FullKernel))
@pytest.mark.parametrize("kind", ["global", "regression"])
def test_pairs_held_out(name, kind):
    skip_what_offsets_drown(name, kind)
    check_pairs_held_out(CASES[name](), kind)


@pytest.mark.parametrize("name", cases(Linear, Iterated, FullKernel, ReducedSet, PairSpace))
def test_preferences_held_out(name):
    check_preferences_held_out(CASES[name]())


@contextmanager
def on_device(name: str):
    """The representation of arrays of another library, with its columns or with the kernel of its rows."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from preflearn.squared.devices.kernels import DeviceBasis
    from preflearn.squared.devices.representation import DeviceRows

    with (
        patch.dict(os.environ, {"SCIPY_ARRAY_API": "1"}),
        sklearn.config_context(array_api_dispatch=True),
    ):
        X, tolerance = rows(name)
        X = torch.asarray(X)
        kernel = Kernel("linear") if "linear" in name else Kernel("rbf", gamma=0.1)
        basis = None
        if "reduced" in name:
            basis = DeviceBasis.choose(X, kernel, None, np.array([0, 1, 2, 5, 9, 13, 14, 20, 23]), None)

        def make(inputs, tasks):
            return DeviceRows(inputs, tasks, QUIET, solver="auto", in_features="columns" in name)

        yield Case(make, Inputs(X, kernel, basis), tolerance)


ON_DEVICE = [
    f"{form}{data}"
    for form in ("linear columns, ", "linear kernel, ", "rbf kernel, ", "rbf reduced, ")
    for data in ("tall", "wide", "tall single")
]


@pytest.mark.parametrize("name", ON_DEVICE)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("relative", "preferences")])
def test_arrays_on_devices(name, kind):
    with on_device(name) as made:
        check_solution(made, kind, with_mean=True)
        check_rows_held_out(made, kind, whole_queries=kind not in ("global", "regression", "intercept"))
        if kind in ("global", "regression") and "reduced" not in name:
            check_pairs_held_out(made, kind)


@pytest.mark.parametrize("solver", ["auto", "dual", "primal", "cg"])
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("n_basis", [None, 50])
@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize("purpose", ["train", "path", "folds", "queries", "pairs", "preferences"])
@pytest.mark.parametrize("shape", [(40, 4), (4, 40), (3000, 2000)])
def test_a_plan_is_what_was_asked_for_or_a_refusal(solver, linear, n_basis, on_device, purpose, shape):
    n_pairs = 30 if purpose == "preferences" else 0
    workload = Workload(purpose, *shape, linear, n_pairs=n_pairs, n_basis=n_basis, on_device=on_device)
    impossible = solver == "dual" if n_basis else (not linear and solver in ("primal", "cg"))
    expected = pytest.raises(ValueError, match=f"solver='{solver}'") if impossible else nullcontext()
    with expected:
        chosen = plan(workload, solver).solver
        if solver == "auto":
            assert chosen in (("primal",) if n_basis else ("primal", "dual", "pairs"))
        elif on_device and solver == "cg":
            assert chosen in ("primal", "cg")  # refused where the device is seen
        else:
            assert chosen in (("dual", "pairs") if solver == "dual" else (solver,))
