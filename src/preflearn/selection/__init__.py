"""Choosing by held-out predictions: one grammar for everything that takes ``cv``, ``scoring`` or ``alphas``.

    cv ──► folds (folds.py) ─────┐
    alphas ──► grid (alphas.py) ─┼─► held-out predictions (held_out.py) ─► score (scoring.py) ─► choice (alphas.py)
    estimator ──► problem ───────┘        one factorisation

The modules are imported by their names; users find `HeldOut` and the splitters in `preflearn.model_selection`.
"""
