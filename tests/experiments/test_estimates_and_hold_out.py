"""The experiments on cross-validation itself: bias of AUC estimates, basis vectors that leave with a fold."""

from __future__ import annotations

import json

import pytest

from preflearn_experiments import auc_estimation, nystrom_cv


def test_auc_estimation_experiment():
    report = auc_estimation.run(sizes=(30,), positives=(0.5, 0.1), trials=20)
    rows = {(row["signal"], row["positive"], row["method"]): row for row in report.rows}
    assert len(rows) == 20
    # Published: pooling falls under leave-pair-out, by the same data in each of the settings.
    for signal in ("no", "yes"):
        for share in ("50%", "10%"):
            pooled, pairs = (rows[signal, share, name] for name in ("pooled leave-one-out", "leave-pair-out"))
            assert pooled["bias"] < pairs["bias"] - 0.01
    assert rows["no", "10%", "averaged ten-fold"]["bias"] is None
    assert rows["yes", "50%", "leave-pair-out"]["true"] > 0.6
    assert "| no | 50% | 30 | leave-pair-out |" in str(report)
    assert json.loads(report.to_json())["settings"]["trials"] == 20


def test_nystrom_cv_experiment():
    report = nystrom_cv.run(n_groups=25, alphas=(1e-9, 1e-3, 1e9), n_splits=5, time_basis=())
    small, _, large = report.rows
    # Published: about four times the error at small alpha, no difference at large.
    assert small["ratio"] > 1.5
    assert large["ratio"] == pytest.approx(1, abs=1e-3)
    assert "| 1e-09 |" in str(report)


def test_nystrom_cv_experiment_on_sentences(real_data):
    report = nystrom_cv.run(data=real_data("ppi_corpora").parent, alphas=(1e-6, 1e6), time_basis=())
    assert report.rows[0]["ratio"] > 1.0
    assert report.rows[1]["ratio"] == pytest.approx(1, abs=1e-2)
