"""
Asking the next question
========================

Forty items, a judge who can only compare two of them, and a few features of each item. How fast is the order found
when the model chooses the questions?
"""

# %%
# Items and a judge
# -----------------
# The judge follows a hidden score, and is wrong now and then when two items are close.

import matplotlib.pyplot as plt
import numpy as np

from preflearn import BradleyTerry
from preflearn.metrics import kendall_tau

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 4))
hidden = 2 * X @ [1.0, -0.5, 0.3, 0.0] + 0.5 * rng.standard_normal(40)


def ask_judge(pair):
    h, j = pair
    return (h, j) if rng.random() < 1 / (1 + np.exp(hidden[j] - hidden[h])) else (j, h)


# %%
# Questions by information and at random
# --------------------------------------
# The model starts without an answer. ``next_pairs`` names the pair whose answer is expected to be most informative, and
# ``partial_fit_pairs`` adds the answer.


def elicit(strategy, n_questions=80):
    model = BradleyTerry(alpha=0.5, item_offsets=0.2, random_state=np.random.RandomState(0))
    model.fit_pairs(X, np.empty((0, 2), dtype=int))
    taus = []
    for _ in range(n_questions):
        pair = model.next_pairs(X, strategy=strategy)[0]
        model.partial_fit_pairs(X, [ask_judge(pair)])
        taus.append(kendall_tau(hidden, model.predict(X)))
    return model, taus


model, by_information = elicit("information")
_, at_random = elicit("random")
plt.plot(by_information, label="by information")
plt.plot(at_random, label="at random")
plt.xlabel("answers")
plt.ylabel("Kendall's τ with the hidden order")
plt.legend()
plt.show()

# %%
# How sure is the order?
# ----------------------
# The posterior gives an interval for each item.

mean, variance = model.posterior(X, variances_only=True)
order = np.argsort(mean)
plt.errorbar(
    mean[order], np.arange(40), xerr=1.96 * np.sqrt(variance[order]), fmt=".", label="learned, 95 % interval"
)
plt.plot(hidden[order] - hidden.mean() + mean.mean(), np.arange(40), "x", label="hidden")
plt.xlabel("latent score")
plt.yticks([])
plt.legend()
plt.show()
