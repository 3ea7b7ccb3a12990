"""
One statement, then many
========================

Three points of a cubic are known. A regression through them is far from the cubic; a single statement of the kind "here
it is higher than there" pulls it back, and a few more nearly restore it. The statements say nothing about values.
"""

# %%
# Three labels
# ------------
# A cubic polynomial, known at three points only. The polynomial kernel of degree 3 contains it, but also many
# others; without a penalty (``alpha=0``) the linear program returns some cubic through the three points.

import matplotlib.pyplot as plt
import numpy as np

from preflearn import OrderPreferenceRegressor
from preflearn.preferences import Preferences


def cubic(x):
    return 4 * x**3 - 1.5 * x


labelled = np.array([-0.9, 0.15, 0.75])
grid = np.linspace(-1, 1, 201)
model = OrderPreferenceRegressor(alpha=0.0, kernel="poly", degree=3, gamma=1.0)
before = model.fit(labelled[:, None], cubic(labelled)).predict(grid[:, None])
print(f"mean absolute error with three labels: {np.abs(before - cubic(grid)).mean():.3f}")

# %%
# Statements on unlabelled points
# -------------------------------
# Rows 0 to 2 are the labelled points; further rows have no label (NaN) and appear in statements only. A pair (i, j)
# asks that f(x_i) be at least f(x_j).


def fit_with(pairs_of_points):
    """The model, and the pairs as row numbers."""
    points = np.concatenate([labelled, np.ravel(pairs_of_points)])
    y = np.concatenate([cubic(labelled), np.full(2 * len(pairs_of_points), np.nan)])
    rows = 3 + np.arange(2 * len(pairs_of_points)).reshape(-1, 2)
    return OrderPreferenceRegressor(alpha=0.0, kernel="poly", degree=3, gamma=1.0).fit(
        points[:, None], y, pairs=Preferences(rows)
    )


def true_order(pairs):
    """Swap the points of a pair where the second is the higher one."""
    swap = cubic(pairs[:, 0]) < cubic(pairs[:, 1])
    return np.where(swap[:, None], pairs[:, ::-1], pairs)


one = true_order(np.array([[-0.45, 0.35]]))
many = true_order(np.random.default_rng(0).uniform(-1, 1, size=(20, 2)))
fits = {"one statement": (fit_with(one), one), "twenty statements": (fit_with(many), many)}

# %%
# Before and after
# ----------------
# Thin lines join the two points of a statement; the larger dot is the one said to be higher.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for axis, (title, (fitted, pairs)) in zip(axes, fits.items()):
    after = fitted.predict(grid[:, None])
    axis.plot(grid, cubic(grid), ":", color="black", label="the cubic")
    axis.plot(grid, before, "--", color="tab:orange", label="three labels")
    axis.plot(grid, after, color="tab:blue", label=f"with {title}")
    axis.plot(labelled, cubic(labelled), "o", mfc="none", mec="black")
    heights = np.linspace(-2.9, -2.1, len(pairs)) if len(pairs) > 1 else [-2.5]
    for (high, low), height in zip(pairs, heights):
        axis.plot([high, low], [height, height], color="gray", linewidth=0.7)
        axis.plot([high], [height], "o", color="black", markersize=4)
        axis.plot([low], [height], "o", color="black", markersize=2)
    axis.set(title=title, xlabel="x", ylim=(-3.1, 3.1))
    axis.legend(loc="upper left", frameon=False)
    error = np.abs(after - cubic(grid)).mean()
    print(
        f"mean absolute error with {title}: {error:.3f}, contradicted: {np.sum(fitted.preference_slack_ > 1e-9)}"
    )
axes[0].set_ylabel("f(x)")
plt.show()
