"""
Outliers among the scores
=========================

RankRLS fits differences of scores, RankSVM only their order. Where a few scores are far off, the squared differences of
RankRLS follow them; the hinge of RankSVM does not see how far off they are. This example makes the noise heavier step
by step and compares both.
"""

# %%
# Data
# ----
# Scores are linear in ten features up to noise of Student's t distribution. With many degrees of freedom the noise
# is Gaussian, with one degree some scores are hundreds of standard deviations away.

import matplotlib.pyplot as plt
import numpy as np

from preflearn import RankRLS, RankSVM, RankSVMCV

rng = np.random.default_rng(0)
weights = rng.standard_normal(10)


def make_queries(n_queries, degrees_of_freedom):
    qid = np.repeat(np.arange(n_queries), 20)
    X = rng.standard_normal((qid.shape[0], 10))
    y = X @ weights + 2.0 * rng.standard_t(degrees_of_freedom, qid.shape[0])
    return X, y, qid


# %%
# The same alpha means the same thing to both learners: it stands beside a sum over pairs.

learners = {
    "RankRLS": RankRLS(1.0),
    "RankSVM, squared hinge": RankSVM(1.0),
    "RankSVM, hinge": RankSVM(1.0, loss="hinge"),
}
degrees = [1, 1.5, 2, 4, 30]
quality = {name: [] for name in learners}
for df in degrees:
    X, y, qid = make_queries(100, df)
    X_new = rng.standard_normal((2000, 10))
    y_new = X_new @ weights  # what the noise hides
    for name, model in learners.items():
        quality[name].append(model.fit(X, y, qid=qid).score(X_new, y_new, qid=np.zeros(2000)))

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, values in quality.items():
    ax.plot(range(len(degrees)), values, marker="o", label=name)
ax.set_xticks(range(len(degrees)), [str(df) for df in degrees])
ax.set_xlabel("degrees of freedom of the noise (heavier to the left)")
ax.set_ylabel("concordance with the noise-free order")
ax.legend()
plt.show()

# %%
# How good is the solution?
# -------------------------
# A fitted RankSVM reports its objective, how far above the minimum it can be at most, and what it cost.

X, y, qid = make_queries(100, 2)
model = RankSVM(1.0, loss="hinge").fit(X, y, qid=qid)
print(f"objective {model.objective_:.4f}, at most {model.duality_gap_:.2g} above the minimum")
print(f"{model.n_iter_} Newton steps, {model.n_evaluations_} evaluations over {model.n_comparisons_} pairs")

# %%
# Choosing alpha
# --------------
# `RankSVMCV` cross-validates over whole queries. Each solution is the start of the next.

search = RankSVMCV(cv=5).fit(X, y, qid=qid)
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.semilogx(search.alphas_, search.fold_scores_, color="0.8")
ax.semilogx(search.alphas_, search.cv_scores_, marker="o")
ax.axvline(search.alpha_, linestyle=":", color="0.3")
ax.set_xlabel("alpha")
ax.set_ylabel("concordance on held-out queries")
plt.show()
