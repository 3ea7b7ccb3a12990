"""
Drugs and targets: what is new decides
======================================

Affinities of drugs and proteins form a matrix. Filling its gaps, ranking new drugs for known targets, and judging a
pair of which nothing is known are different tasks, and a model that is good at the first may be poor at the last. This
example measures all four settings exactly, without refitting, on data made to look like a kinase screen.
"""

# %%
# A relation
# ----------
# Objects come in families, as kinases and inhibitors do. Each drug has a general strength, each target a general
# promiscuity, and the rest is an interaction of what they look like.

import matplotlib.pyplot as plt
import numpy as np

from preflearn.metrics import concordance
from preflearn.relations import KroneckerRLS, RelationPath

rng = np.random.default_rng(0)


def objects(n_families, n_each, n_features):
    centres = rng.normal(size=(n_families, n_features))
    return np.repeat(centres, n_each, axis=0) + 0.5 * rng.normal(size=(n_families * n_each, n_features))


drugs, targets = objects(8, 6, 5), objects(12, 8, 4)
interaction = np.tanh(drugs @ rng.normal(size=(5, 4)) @ targets.T)
level = rng.normal(size=(48, 1)) + rng.normal(size=(1, 96))
Y = interaction + 0.5 * level + 0.2 * rng.normal(size=interaction.shape)

figure, axes = plt.subplots(figsize=(8, 4))
image = axes.imshow(Y, cmap="viridis", aspect="auto")
axes.set(xlabel="targets", ylabel="drugs", title="affinities")
figure.colorbar(image)

# %%
# Four settings
# -------------
# One decomposition of each side serves every alpha and all four settings. The best alpha differs: the more is new, the
# less single labels can be trusted.

kernels = {"row_kernel": "rbf", "column_kernel": "rbf"}
kernels |= {"row_params": {"gamma": 0.2}, "column_params": {"gamma": 0.2}}
alphas = 10.0 ** np.arange(-3, 3.5, 0.5)
settings = {"entries": "new pair", "rows": "new drug", "columns": "new target", "both": "both new"}
path = RelationPath(KroneckerRLS(**kernels), drugs, targets, Y)

figure, axes = plt.subplots(figsize=(7, 4))
held_out = {}
for setting, name in settings.items():
    F = path.held_out(setting, alphas=alphas)
    scores = [concordance(Y.ravel(), f.ravel()) for f in F]
    held_out[setting] = F[int(np.argmax(scores))]
    (line,) = axes.semilogx(alphas, scores, label=name)
    axes.plot(alphas[np.argmax(scores)], max(scores), "o", color=line.get_color())
axes.set(xlabel="alpha", ylabel="held-out concordance")
axes.legend()

# %%
# What the predictions look like
# ------------------------------
# For new pairs the general levels of the drug and the target are seen in the other labels of the row and the column.
# For two new objects only the families are left.

figure, axes = plt.subplots(1, 4, figsize=(12, 3), sharey=True)
for ax, (setting, name) in zip(axes, settings.items(), strict=True):
    ax.imshow(held_out[setting], cmap="viridis", aspect="auto", vmin=Y.min(), vmax=Y.max())
    ax.set(title=f"{name}: {concordance(Y.ravel(), held_out[setting].ravel()):.2f}", xlabel="targets")
axes[0].set_ylabel("drugs")
plt.show()
