"""The slow and obvious versions that every shortcut is tested against."""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections import Counter

import numpy as np

# --------------------------------------------------------------------------------------------------------------
# Labelled graphs
# --------------------------------------------------------------------------------------------------------------


def walk_weights(graph, max_length=None):
    """W = (I - A)⁻¹ - I with a dense inverse, or A + ... + A^max_length term by term."""
    A = np.zeros((graph.n_vertices, graph.n_vertices))
    for source, target, weight in graph.edges:
        A[source, target] += weight
    if max_length is None:
        return np.linalg.inv(np.eye(A.shape[0]) - A) - np.eye(A.shape[0])
    return sum((np.linalg.matrix_power(A, length) for length in range(1, max_length + 1)), np.zeros_like(A))


def label_pair_weights(graph, aggregate="sum", max_length=None, min_weight=0.0):
    """{(a, b): weight} by going through every vertex pair and every pair of their labels."""
    W = walk_weights(graph, max_length)
    found = {}
    for i in range(graph.n_vertices):
        for j in range(graph.n_vertices):
            # The dense inverse leaves rounding errors where no walk leads; they are not weights.
            if W[i, j] <= max(min_weight, 1e-13):
                continue
            for a in graph.labels[i]:
                for b in graph.labels[j]:
                    before = found.get((a, b), 0.0)
                    found[a, b] = before + W[i, j] if aggregate == "sum" else max(before, W[i, j])
    return found


def neighbourhood_labels(graph, depth):
    """Weisfeiler-Lehman by writing every neighbourhood out in full: {description: how often it occurs}."""
    names = [str(sorted(labels)) for labels in graph.labels]
    counts = {}
    for labels in graph.labels:
        for label in labels:
            counts[0, label] = counts.get((0, label), 0) + 1
    for level in range(1, depth + 1):
        outward = [sorted(names[t] for s, t, _ in graph.edges if s == v) for v in range(graph.n_vertices)]
        inward = [sorted(names[s] for s, t, _ in graph.edges if t == v) for v in range(graph.n_vertices)]
        names = [str((names[v], outward[v], inward[v])) for v in range(graph.n_vertices)]
        for name in names:
            counts[level, name] = counts.get((level, name), 0) + 1
    return counts


def shortest_path_dependencies(n_tokens, dependencies, starts, ends):
    """Dependencies on any shortest undirected path from a start to an end, by listing all simple paths."""
    on_path = set()
    for start in starts:
        for end in ends:
            paths = []
            stack = [(start, [start], [])]
            while stack:
                at, seen, used = stack.pop()
                if at == end:
                    paths.append(used)
                    continue
                for number, (governor, dependent, _) in enumerate(dependencies):
                    for here, there in ((governor, dependent), (dependent, governor)):
                        if here == at and there not in seen:
                            stack.append((there, [*seen, there], [*used, number]))
            if paths:
                shortest = min(map(len, paths))
                on_path.update(number for path in paths if len(path) == shortest for number in path)
    return on_path


# ------------------------------------------------------------------------------------------------------------------
# The core: comparisons as explicit lists of pairs, learners as dense linear systems
# ------------------------------------------------------------------------------------------------------------------


def counted_pairs(y, qid, *, cost="magnitude", ties="include"):
    """Every pair (i, j), j < i, of the same query that is counted."""
    tied_count = cost == "magnitude" and ties == "include"
    return [
        (i, j) for i in range(len(y)) for j in range(i) if qid[i] == qid[j] and (tied_count or y[i] != y[j])
    ]


def dense_comparisons(y, qid, *, cost="magnitude", ties="include", weighting="pair", row_weights=None):
    """L and b, added up pair by pair."""
    w = np.ones(len(y)) if row_weights is None else row_weights
    m = len(y)
    L, b = np.zeros((m, m)), np.zeros(m)
    pairs = counted_pairs(y, qid, cost=cost, ties=ties)
    for i, j in pairs:
        if w[i] * w[j] == 0:
            continue
        n_rows = sum(w[k] for k, q in enumerate(qid) if q == qid[i])
        n_pairs = sum(w[k] * w[h] for k, h in pairs if qid[k] == qid[i])
        weight = w[i] * w[j] / {"pair": 1.0, "item": n_rows, "query": n_pairs}[weighting]
        difference = y[i] - y[j]
        target = np.sign(difference) if cost == "unit" else difference
        if cost == "relative":
            weight /= difference**2
        _add_edge(L, b, i, j, weight, target)
    return L, b


def censored_pairs(times, events, qid):
    """Every (i, j) of the same query where j outlived i."""
    m = range(len(times))
    return [
        (i, j)
        for i in m
        for j in m
        if events[i]
        and qid[i] == qid[j]
        and (times[i] < times[j] or (times[i] == times[j] and not events[j]))
    ]


def probability_uncensored(times, events, qid, i):
    """Kaplan-Meier estimate of the probability that a row of the query of i is not censored by the time of i."""
    rows = [k for k in range(len(times)) if qid[k] == qid[i]]
    value = 1.0
    for t in sorted({times[k] for k in rows if times[k] <= times[i]}):
        n_censored = sum(times[k] == t and not events[k] for k in rows)
        n_events = sum(times[k] == t and events[k] for k in rows)
        at_risk = sum(times[k] >= t for k in rows) - n_events
        value *= 1.0 if n_censored == 0 else 1 - n_censored / at_risk
    return value


def weighted_censored_pairs(times, events, qid, *, weighting="pair", weights=None, row_weights=None):
    """The row whose event was seen, the row that outlived it and the weight, of each pair with a weight."""
    w = np.ones(len(times)) if row_weights is None else row_weights
    found = {}
    for i, j in censored_pairs(times, events, qid):
        G = 1.0 if weights is None else probability_uncensored(times, events, qid, i)
        if w[i] * w[j] > 0:
            found[i, j] = w[i] * w[j] / G**2
    below = {}
    for query in np.unique(qid):
        total = sum(value for (i, _), value in found.items() if qid[i] == query)
        below[query] = {"pair": 1.0, "item": w[qid == query].sum(), "query": total}[weighting]
    pairs = np.array(list(found), dtype=int).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1], np.array([value / below[qid[i]] for (i, _), value in found.items()])


def dense_censored(times, events, qid, **options):
    """L and b of censored times, added up pair by pair."""
    L, b = np.zeros((len(times), len(times))), np.zeros(len(times))
    for i, j, weight in zip(*weighted_censored_pairs(times, events, qid, **options), strict=True):
        _add_edge(L, b, j, i, weight, 1.0)
    return L, b


def c_index(times, events, scores, qid, weights=None, row_weights=None):
    """Mean over the queries of the weighted share of the pairs in the right order; None without a pair."""
    shares = []
    for query in np.unique(qid):
        rows = np.flatnonzero(qid == query)
        of_rows = None if row_weights is None else row_weights[rows]
        options = {"weights": weights, "row_weights": of_rows}
        i, j, weight = weighted_censored_pairs(times[rows], events[rows], qid[rows], **options)
        s = scores[rows]
        if weight.size:
            shares.append(weight @ ((s[j] > s[i]) + 0.5 * (s[j] == s[i])) / weight.sum())
    return np.mean(shares) if shares else None


def dense_preferences(m, pairs, magnitude=None, weight=None):
    """L and b of explicit preferences."""
    L, b = np.zeros((m, m)), np.zeros(m)
    for k, (i, j) in enumerate(pairs):
        w = 1.0 if weight is None else weight[k]
        z = 1.0 if magnitude is None else magnitude[k]
        _add_edge(L, b, i, j, w, z)
    return L, b


def _add_edge(L, b, i, j, weight, target):
    L[i, i] += weight
    L[j, j] += weight
    L[i, j] -= weight
    L[j, i] -= weight
    b[i] += weight * target
    b[j] -= weight * target


def dense_intercept(y):
    """L and b of least squares with an unregularised intercept: the intercept eliminated by hand."""
    m = len(y)
    centre = np.eye(m) - np.ones((m, m)) / m
    return centre, centre @ y


def refined_solve(A, c):
    """x with A x = c, corrected by its residual in extended precision, which a plain solve lacks at a small alpha."""
    plain = np.asarray(A, dtype=np.float64)
    x = np.linalg.solve(plain, np.asarray(c, dtype=np.float64))
    for _ in range(3):
        x = x + np.linalg.solve(plain, np.asarray(c - A @ x.astype(np.longdouble), dtype=np.float64))
    return x


def kernel_solution(K, L, b, alpha):
    """a with (L K + alpha I) a = b."""
    L, K = (np.asarray(matrix, dtype=np.longdouble) for matrix in (L, K))
    return refined_solve(L @ K + alpha * np.eye(len(K)), b)


def feature_solution(features, L, b, alpha):
    """w with (Φᵀ L Φ + alpha I) w = Φᵀ b."""
    F, L, b = (np.asarray(values, dtype=np.longdouble) for values in (features, L, b))
    return refined_solve(F.T @ L @ F + alpha * np.eye(F.shape[1]), F.T @ b)


def reduced_set_solution(K_MR, K_RR, L, b, alpha):
    """β that minimises the loss of f = K_MR β plus alpha βᵀ K_RR β, by the normal equations (least norm)."""
    return np.linalg.lstsq(K_MR.T @ L @ K_MR + alpha * K_RR, K_MR.T @ b, rcond=None)[0]


def positions(scores, qid):
    """1 + the number of better rows of the same query."""
    return [
        1 + sum(qid[j] == qid[i] and scores[j] > scores[i] for j in range(len(scores)))
        for i in range(len(scores))
    ]


# ---------------------------------------------------------------------------------------------------------------
# Regression with order preferences: the program (7) of Zhu and Goldberg (2007), written down as it is printed
# ---------------------------------------------------------------------------------------------------------------


def order_objective(K, y, coef, bias, alpha, order_weight, epsilon, statements):
    """Equation (6). K: l × r; statements: list of (row of kernel differences, sign of the bias, margin, weight)."""
    loss = sum(max(abs(y[i] - K[i] @ coef - bias) - epsilon, 0.0) for i in range(len(y))) / len(y)
    norm = alpha * sum(abs(value) for value in coef)
    violated = [
        weight * max(margin - (row @ coef + sign * bias), 0.0) for row, sign, margin, weight in statements
    ]
    return loss + norm + (order_weight * sum(violated) / len(violated) if violated else 0.0)


def order_program_whole(K, y, alpha, order_weight, epsilon, statements):
    """Minimum of (7): variables α, α₀, ξ, η, ν and a dense constraint matrix."""
    from scipy.optimize import linprog

    unit = np.abs(y).max()  # the program is homogeneous in (y, ε, margins), the solver's tolerances are not
    y, epsilon = y / unit, epsilon / unit
    statements = [(row, sign, margin / unit, weight) for row, sign, margin, weight in statements]
    l, r = K.shape
    p = len(statements)
    n = r + 1 + l + r + p
    a, a0, xi, eta, nu = 0, r, r + 1, r + 1 + l, r + 1 + l + r
    rows, limits = [], []
    for i in range(l):
        for sign in (1.0, -1.0):
            row = np.zeros(n)
            row[a : a + r], row[a0], row[xi + i] = sign * K[i], sign, -1.0
            rows.append(row)
            limits.append(epsilon + sign * y[i])
    for j in range(r):
        for sign in (1.0, -1.0):
            row = np.zeros(n)
            row[a + j], row[eta + j] = sign, -1.0
            rows.append(row)
            limits.append(0.0)
    for q, (difference, sign, margin, _) in enumerate(statements):
        row = np.zeros(n)
        row[a : a + r], row[a0], row[nu + q] = -difference, -sign, -1.0
        rows.append(row)
        limits.append(-margin)
    cost = np.zeros(n)
    cost[xi : xi + l] = 1.0 / l
    cost[eta : eta + r] = alpha
    cost[nu:] = [order_weight * weight / p for *_, weight in statements]
    bounds = [(None, None)] * (r + 1) + [(0, None)] * (l + r + p)
    # The solver's own tolerance, 1e-7, is as large as the smallest costs.
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    for presolve in (True, False):
        options = {**tight, "presolve": presolve}
        result = linprog(
            cost, A_ub=np.array(rows), b_ub=limits, bounds=bounds, method="highs", options=options
        )
        if result.status == 0:
            return unit * result.fun
    raise AssertionError(result.message)


# ------------------------------------------------------------------------------------------------------------------
# LETOR text, line by line with regular expressions and float()
# ------------------------------------------------------------------------------------------------------------------


class LetorError(Exception):
    """The line of the first fault, from 1."""


def letor_rows(data, *, missing=None, allow_unknown=False):
    """[(line, target, query or None, {index: value}, comment)], or LetorError."""
    import re

    number = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
    # As in tables: what stands for a missing value among numbers.
    nothing = {
        b"",
        b"na",
        b"n/a",
        b"#n/a",
        b"n.a.",
        b"nan",
        b"nat",
        b"null",
        b"nil",
        b"none",
        b"missing",
        b"unknown",
    }
    nothing |= {b"?", b"-", b"--", b"."}

    def read(text, line, instead):
        if number.fullmatch(text) and abs(float(text)) != float("inf"):
            return float(text)
        if text.lower() in nothing and instead is not None:
            return instead
        raise LetorError(line)

    rows = []
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for line, text in enumerate(lines, start=1):
        content, hash_mark, comment = text.partition(b"#")
        if not hash_mark:
            content = content.removesuffix(b"\r")
        tokens = [token for token in re.split(rb"[ \t]+", content) if token]
        if not tokens:
            continue
        if b"\r" in content or b":" in tokens[0]:
            raise LetorError(line)
        target = read(tokens.pop(0), line, float("nan") if allow_unknown else None)
        query = None
        if tokens and tokens[0].startswith(b"qid:"):
            token = tokens.pop(0)
            if not re.fullmatch(rb"qid:-?[0-9]{1,18}", token):
                raise LetorError(line)
            query = int(token[4:])
        features = {}
        for token in tokens:
            pair = re.fullmatch(rb"([0-9]+):(.+)", token, re.DOTALL)
            if pair is None or not max([0, *features]) < int(pair[1]) <= 2**31 - 2:
                raise LetorError(line)
            features[int(pair[1])] = read(pair[2], line, missing)
        if rows and (query is None) != (rows[0][2] is None):
            raise LetorError(line)
        try:
            rows.append((line, target, query, features, comment.decode().strip()))
        except UnicodeDecodeError:
            raise LetorError(line) from None
    if len(rows) > 20 and lines[-1]:  # many rows of one length and a shorter last one without a line end
        lengths = {len(features) for _, _, _, features, _ in rows[:-1]}
        last, *_, features, _ = rows[-1]
        if last == len(lines) and len(lengths) == 1 and len(features) < min(lengths):
            raise LetorError(last)
    return rows


def largest_f(y, scores):
    """The largest F over every possible threshold, each tried in turn."""
    best = 0.0
    for threshold in [min(scores) - 1, *scores]:
        called = [score > threshold for score in scores]
        hits = sum(one and label == 1 for one, label in zip(called, y, strict=True))
        n_positive = sum(label == 1 for label in y)
        if sum(called) + n_positive:
            best = max(best, 2 * hits / (sum(called) + n_positive))
    return best


def leave_groups_out(make_model, K, y, groups, basis=None):
    """Score every row by a model refitted without its group, whose basis vectors leave with it."""
    import numpy as np

    scores = np.empty(K.shape[0])
    for group in set(groups.tolist()):
        out = np.flatnonzero(groups == group)
        kept = np.flatnonzero(groups != group)
        inner = None if basis is None else np.flatnonzero(np.isin(kept, basis))
        scores[out] = make_model(inner).fit(K[np.ix_(kept, kept)], y[kept]).predict(K[np.ix_(out, kept)])
    return scores


# ---------------------------------------------------------------------------------------------------------------
# Transductive RankRLS: the objective (11) with every fold refitted
# ---------------------------------------------------------------------------------------------------------------


def transductive_errors(train, L, folds, scores, unknown, candidate):
    """The errors whose squares (11) adds up, L = S S: S_U (y_U - f₋U(X_U)) of each fold, the candidate in place of NaN.

    train(rows, scores) returns the predictions for all rows of the model trained on some of them.
    """
    filled = scores.copy()
    filled[unknown] = candidate
    errors = []
    for fold in folds:
        rest = np.setdiff1d(np.arange(len(scores)), fold)
        values, vectors = np.linalg.eigh(L[np.ix_(fold, fold)])
        S = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        errors.append(S @ (filled - train(rest, filled[rest]))[fold])
    return np.concatenate(errors)


def transduce(train, L, folds, scores, unknown, fidelity):
    """argmin of (11) by least squares: the errors are affine in the candidate, so unit vectors give their matrix."""
    n = np.count_nonzero(unknown)
    inductive = train(np.flatnonzero(~unknown), scores[~unknown])[unknown]
    at_zero = transductive_errors(train, L, folds, scores, unknown, np.zeros(n))
    columns = [transductive_errors(train, L, folds, scores, unknown, unit) - at_zero for unit in np.eye(n)]
    matrix = np.vstack([np.column_stack(columns), np.sqrt(fidelity) * np.eye(n)])
    return np.linalg.lstsq(matrix, np.concatenate([-at_zero, np.sqrt(fidelity) * inductive]), rcond=None)[0]


# ---------------------------------------------------------------------------------------------------------------
# Ranking metrics of one query: every pair, every order of tied rows
# ---------------------------------------------------------------------------------------------------------------


def pair_counts(y, scores, weight=None):
    """Weights of the pairs that are concordant, discordant, tied in scores only, not tied in y, in scores."""
    weight = np.ones(len(y)) if weight is None else weight
    concordant = discordant = tied = untied_y = untied_scores = 0.0
    for i in range(len(y)):
        for j in range(i):
            w = weight[i] * weight[j]
            same_y, same_score = y[i] == y[j], scores[i] == scores[j]
            agree = (y[i] > y[j]) == (scores[i] > scores[j])
            concordant += w * (not same_y and not same_score and agree)
            discordant += w * (not same_y and not same_score and not agree)
            tied += w * (not same_y and same_score)
            untied_y += w * (not same_y)
            untied_scores += w * (not same_score)
    return concordant, discordant, tied, untied_y, untied_scores


def concordance_of_query(y, scores, weight=None):
    concordant, _, tied, untied, _ = pair_counts(y, scores, weight)
    return (concordant + tied / 2) / untied if untied else np.nan


def volume_of_query(y, scores, classes):
    """The share of tuples, one row of each class, in the right order; t equal scores count 1 / t!."""
    total = []
    for rows in itertools.product(*(scores[y == c] for c in classes)):
        fits = all(a <= b for a, b in itertools.pairwise(rows))
        total.append(fits / math.prod(math.factorial(n) for n in Counter(rows).values()))
    return np.mean(total) if total else np.nan


def least_ordinal_cost(scores, codes, n_classes, cost):
    """The least cost of any ascending thresholds, by trying all that are different."""
    values = np.unique(scores)
    places = [-np.inf, *(values[:-1] + values[1:]) / 2, np.inf]
    return min(
        ordinal_cost(np.searchsorted(thresholds, scores), codes, cost)
        for thresholds in itertools.combinations_with_replacement(places, n_classes - 1)
    )


def ordinal_cost(predicted, codes, cost):
    return int((np.abs(predicted - codes) if cost == "absolute" else predicted != codes).sum())


def tau_b_of_query(y, scores):
    concordant, discordant, _, untied_y, untied_scores = pair_counts(y, scores)
    return (
        (concordant - discordant) / np.sqrt(untied_y * untied_scores) if untied_y * untied_scores else np.nan
    )


def mean_over_tie_orders(value_of_list, y, scores):
    """Mean of ``value_of_list(y in order of the list)`` over every order in which scores never rise."""
    from itertools import groupby, permutations, product

    rows = sorted(range(len(y)), key=lambda row: -scores[row])
    ties = [list(group) for _, group in groupby(rows, key=lambda row: scores[row])]
    lists = [
        [y[row] for group in choice for row in group]
        for choice in product(*(permutations(tie) for tie in ties))
    ]
    return sum(map(value_of_list, lists)) / len(lists)


def ndcg_of_list(y, k=None, gain="exponential"):
    def dcg(grades):
        gains = [np.expm1(np.log(2) * g) if gain == "exponential" else g for g in grades]
        return sum(g / np.log2(position + 2) for position, g in enumerate(gains[:k]))

    best = dcg(sorted(y, reverse=True))
    return dcg(y) / best if best else np.nan


def average_precision_of_list(y):
    hits = [position for position, grade in enumerate(y) if grade > 0]
    return np.mean([(n + 1) / (position + 1) for n, position in enumerate(hits)]) if hits else np.nan


def reciprocal_rank_of_list(y, k=None):
    if not any(grade > 0 for grade in y):
        return np.nan
    return next((1 / (position + 1) for position, grade in enumerate(y[:k]) if grade > 0), 0.0)


def precision_of_list(y, k):
    return sum(grade > 0 for grade in y[:k]) / k if any(grade > 0 for grade in y) else np.nan


def err_of_list(y, max_grade, k=None):
    if not any(grade > 0 for grade in y):
        return np.nan
    total, reads_on = 0.0, 1.0
    for position, grade in enumerate(y[:k]):
        stops = np.expm1(np.log(2) * grade) / 2.0**max_grade  # 2^grade - 1
        total += reads_on * stops / (position + 1)
        reads_on *= 1 - stops
    return total


# ---------------------------------------------------------------------------------------------------------------
# RankSVM
# ---------------------------------------------------------------------------------------------------------------


def untied_pairs(y, qid, weighting="pair", row_weights=None):
    """(worse, better, weight): every pair of rows of one query with different scores, one by one.

    With weights of rows a pair weighs the product of its two, and one that weighs nothing is left out.
    """
    w = np.ones(len(y)) if row_weights is None else row_weights
    worse, better, weight = [], [], []
    for query in np.unique(qid):
        rows = np.flatnonzero(qid == query)
        found = [(i, j) for i in rows for j in rows if y[i] < y[j] and w[i] * w[j] > 0]
        products = [w[i] * w[j] for i, j in found]
        below = {"pair": 1.0, "item": sum(w[rows]), "query": sum(products)}[weighting]
        worse += [i for i, _ in found]
        better += [j for _, j in found]
        weight += [product / below for product in products]
    return np.array(worse, int), np.array(better, int), np.array(weight)


def violation_statistics(pairs, p, v, margin=1.0):
    """c, d and L v by adding up the violating pairs."""
    worse, better, weight = pairs
    violated = p[better] < p[worse] + margin
    worse, better, weight = worse[violated], better[violated], weight[violated]
    c, d, product = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
    np.add.at(c, worse, weight)
    np.add.at(d, better, weight)
    np.add.at(product, worse, weight * (v[worse] - v[better]))
    np.add.at(product, better, weight * (v[better] - v[worse]))
    return c, d, product


def ranksvm_objective(features, w, pairs, alpha, loss):
    """The objective, pair by pair."""
    worse, better, weight = pairs
    slack = np.maximum(1.0 - (features[better] - features[worse]) @ w, 0.0)
    return float(weight @ (slack if loss == "hinge" else slack**2) + alpha * w @ w)


def ranksvm_minimum(features, pairs, alpha, loss):
    """(upper bound, lower bound) of the minimum, from the box-constrained dual with one variable per pair."""
    from scipy.optimize import minimize

    worse, better, weight = pairs
    differences = features[better] - features[worse]

    def negative_dual(beta):
        w = differences.T @ beta / (2.0 * alpha)
        value, gradient = beta.sum() - alpha * w @ w, 1.0 - differences @ w
        if loss == "squared_hinge":
            value, gradient = value - (beta**2 / (4.0 * weight)).sum(), gradient - beta / (2.0 * weight)
        return -value, -gradient

    bounds = [(0.0, u if loss == "hinge" else None) for u in weight]
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 40}
    solution = minimize(
        negative_dual, weight / 2, jac=True, bounds=bounds, method="L-BFGS-B", options=options
    )
    w = differences.T @ solution.x / (2.0 * alpha)
    return ranksvm_objective(features, w, pairs, alpha, loss), -solution.fun


# --------------------------------------------------------------------------------------------------------------
# Hold-out: refit on the remaining rows
# --------------------------------------------------------------------------------------------------------------


def refit_without(model, X, y, qid, leaving, test, sample_weight=None):
    """Predictions for test rows by a clone trained on the rows that stay; held-out basis vectors leave the model."""
    from sklearn.base import clone

    rest = np.setdiff1d(np.arange(len(y)), leaving)
    fresh = clone(model)
    if getattr(model, "n_basis", None) is not None:
        basis = clone(model).fit(X, y).basis_indices_
        fresh.set_params(n_basis=None, basis=np.flatnonzero(np.isin(rest, basis)))
    new, train = X[test], X[rest]
    if getattr(model, "kernel", None) == "precomputed":
        new, train = new[:, rest], train[:, rest]
    extra = {} if qid is None else {"qid": np.asarray(qid)[rest]}
    extra |= {} if sample_weight is None else {"sample_weight": sample_weight[rest]}
    return fresh.fit(train, y[rest], **extra).predict(new)


def refit_folds(model, X, y, qid, folds, sample_weight=None):
    """Held-out predictions of disjoint folds, one refit each; rows in no fold stay NaN."""
    out = np.full(np.shape(y), np.nan)
    for fold in folds:
        out[fold] = refit_without(model, X, y, qid, fold, fold, sample_weight)
    return out


def naive_hold_out(estimator, X, y, folds, *, qid=None, leaving=None, **fit_params):
    """Predictions of every row by a clone that is really trained without its fold; the shape of y.

    Parameters
    ----------
    estimator : any estimator with fit
    folds : sequence of int arrays
        The test rows of each fold; a row in several gets the mean, a row in none NaN.
    qid : array of shape (m,), optional
    leaving : sequence of int arrays, optional
        The rows that leave the training with each fold, where those are more than the test rows (groups).
    **fit_params
        Passed to fit: anything with one entry for each row (sample_weight, groups) for the rows that stay.
    """
    total, count = np.zeros(np.shape(y)), np.zeros(len(y))
    for test, left in zip(folds, folds if leaving is None else leaving, strict=True):
        rest = np.setdiff1d(np.arange(len(y)), left)
        total[test] += naive_predictions(estimator, X, y, rest, test, qid=qid, **fit_params)
        count[test] += 1
    count = count.reshape(-1, *[1] * (np.ndim(y) - 1))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def naive_predictions(estimator, X, y, rest, test, *, qid=None, **fit_params):
    """Predictions of the test rows by a clone trained on the rows that stay, and on nothing else.

    Basis vectors that are given by row numbers leave where their rows leave. A drawn basis (``n_basis``) is drawn from
    the rows that stay; pass ``basis=model.basis_indices_`` for what is drawn once from all rows.
    """
    from inspect import signature

    from sklearn.utils import _safe_indexing as rows_of

    model = naive_training(estimator, X, y, rest, qid=qid, **fit_params)
    new = rows_of(X, test)
    new = new[:, rest] if _takes_kernel_matrix(model) else new
    if hasattr(model, "decision_function"):
        return model.decision_function(new)
    takes_qid = qid is not None and "qid" in signature(model.predict).parameters
    return model.predict(new, **({"qid": np.asarray(qid)[test]} if takes_qid else {}))


def naive_training(estimator, X, y, rest, *, qid=None, **fit_params):
    """A clone trained on some rows."""
    from sklearn.base import clone
    from sklearn.utils import _safe_indexing as rows_of

    model = clone(estimator)
    for name, value in estimator.get_params().items():
        if name.rpartition("__")[2] == "basis" and not isinstance(value, str):
            new_number = {int(row): number for number, row in enumerate(rest)}
            among = [new_number[int(row)] for row in value if int(row) in new_number]
            model.set_params(**{name: np.array(among, dtype=int), name[: -len("basis")] + "n_basis": None})
    X_rest = rows_of(X, rest)
    X_rest = X_rest[:, rest] if _takes_kernel_matrix(model) else X_rest
    extra = fit_params if qid is None else {_naive_qid(model): qid, **fit_params}
    one_for_each_row = {name: np.ndim(values) > 0 and len(values) == len(y) for name, values in extra.items()}
    extra = {
        name: rows_of(values, rest) if one_for_each_row[name] else values for name, values in extra.items()
    }
    return model.fit(X_rest, rows_of(y, rest), **extra)


def _takes_kernel_matrix(model):
    return model.__sklearn_tags__().input_tags.pairwise


def _naive_qid(model):
    """The name of the argument qid in fit: of the last step of a pipeline with its prefix."""
    steps = getattr(model, "steps", None)
    return "qid" if steps is None else f"{steps[-1][0]}__{_naive_qid(steps[-1][1])}"


def refit_reduced(model, X, y, qid, basis, fold):
    """Predictions for a fold by a model trained on the other rows, with the basis rows among them."""
    from sklearn.base import clone

    rest = np.setdiff1d(np.arange(len(y)), fold)
    kept = np.flatnonzero(np.isin(rest, basis))
    if kept.size == 0:
        raise ValueError("no basis vector is left")
    queries = {} if qid is None else {"qid": qid[rest]}
    return clone(model).set_params(basis=kept).fit(X[rest], y[rest], **queries).predict(X[fold])


def refit_without_preferences(model, X, pairs, magnitude, weight, sets):
    """The predicted difference of each preference by a model trained without its set."""
    from sklearn.base import clone

    out = np.empty(len(pairs))
    for left in sets:
        rest = np.setdiff1d(np.arange(len(pairs)), left)
        f = clone(model).fit_pairs(X, pairs[rest], magnitude=magnitude[rest], weight=weight[rest]).predict(X)
        out[left] = f[pairs[left, 0]] - f[pairs[left, 1]]
    return out


# ---------------------------------------------------------------------------------------------------------------
# Performance estimates: every pair by refitting, DeLong's variance and Wilcoxon's test by their definitions
# ---------------------------------------------------------------------------------------------------------------


def row_wins(y, scores, owner):
    """For each row its pairs inside its group with different y, and those ordered as y is; one pair at a time."""
    wins, pairs = np.zeros(len(y)), np.zeros(len(y))
    for i in range(len(y)):
        for j in range(len(y)):
            if owner[i] == owner[j] and y[i] != y[j]:
                order = np.sign(y[i] - y[j]) * np.sign(scores[i] - scores[j])
                wins[i] += (1 + order) / 2
                pairs[i] += 1
    return wins, pairs


def leave_pair_out_outcomes(fit_predict, y, groups=None):
    """Outcome H of each (positive, negative) pair by refitting: {(i, j): 1, 1/2 or 0}.

    ``fit_predict(train, test)`` gives scores of the test rows; rows of the pair's groups leave the training.
    """
    groups = np.arange(len(y)) if groups is None else np.asarray(groups)
    outcomes = {}
    for i in range(len(y)):
        for j in range(len(y)):
            if y[i] > y[j]:
                train = np.flatnonzero((groups != groups[i]) & (groups != groups[j]))
                f_i, f_j = fit_predict(train, np.array([i, j]))
                outcomes[i, j] = 1.0 if f_i > f_j else 0.5 if f_i == f_j else 0.0
    return outcomes


def delong_variance(y, scores):
    """DeLong, DeLong and Clarke-Pearson (1988): from the matrix of all (positive, negative) outcomes."""
    positive, negative = scores[y == 1], scores[y == 0]
    H = 0.5 + 0.5 * np.sign(positive[:, None] - negative[None, :])
    return H.mean(axis=1).var(ddof=1) / len(positive) + H.mean(axis=0).var(ddof=1) / len(negative)


def signed_ranks_pvalue(differences):
    """Two-sided p-value of Wilcoxon's statistic over all assignments of signs; differences not zero and not tied."""
    from itertools import product

    ranks = np.argsort(np.argsort(np.abs(differences))) + 1
    observed = ranks[differences > 0].sum()
    sums = np.array([ranks[np.array(signs)].sum() for signs in product([False, True], repeat=len(ranks))])
    return min(1.0, 2 * min((sums <= observed).mean(), (sums >= observed).mean()))


def holm_by_steps(pvalues):
    """Holm's procedure step by step: the smallest level at which each hypothesis is rejected."""
    n = len(pvalues)
    order = sorted(range(n), key=lambda k: pvalues[k])
    corrected, running = [0.0] * n, 0.0
    for step, k in enumerate(order):
        running = max(running, (n - step) * pvalues[k])
        corrected[k] = min(1.0, running)
    return corrected


# ---------------------------------------------------------------------- streams of chunks


def held_out_pair_error(fit_predict, y, qid, fold_of_row, *, untied=False, unit=False, weighting="pair"):
    """Mean over pairs of the same query of (target - difference of predictions by the model without the fold)².

    ``fit_predict(train, test)`` trains on some rows and predicts others. Weighted as in training.
    """
    total = weight = 0.0
    for fold in np.unique(fold_of_row):
        test = np.flatnonzero(fold_of_row == fold)
        f = fit_predict(np.flatnonzero(fold_of_row != fold), test)
        for query in np.unique(qid[test]):
            rows = np.flatnonzero(qid[test] == query)
            pairs = [(i, j) for k, i in enumerate(rows) for j in rows[k + 1 :]]
            if untied:
                pairs = [(i, j) for i, j in pairs if y[test[i]] != y[test[j]]]
            if not pairs:
                continue
            w = {"pair": 1.0, "item": 1.0 / len(rows), "query": 1.0 / len(pairs)}[weighting]
            for i, j in pairs:
                target = y[test[i]] - y[test[j]]
                target = np.sign(target) if unit else target
                total += w * (target - (f[i] - f[j])) ** 2
                weight += w
    return total / weight


def relative_to_query(X, qid, method):
    """Features standardised or ranked inside their query, value by value."""
    out = np.zeros(np.shape(X))
    for label in set(qid):
        rows = [i for i in range(len(qid)) if qid[i] == label]
        for j in range(np.shape(X)[1]):
            values = np.array([float(X[i][j]) for i in rows])
            if values.min() == values.max():
                continue
            for i, value in zip(rows, values):
                if method == "standardise":
                    out[i, j] = (value - values.mean()) / values.std()
                else:
                    place = (values < value).sum() + ((values == value).sum() - 1) / 2
                    out[i, j] = 2 * place / (len(rows) - 1) - 1
    return out


def exact_reduced_set_predictions(K_MR, K_RR, L, b, alpha):
    """K_MR β with (K_RM L K_MR + λ K_RR) β = K_RM b for one output, in rational arithmetic on the numbers as given."""
    from fractions import Fraction

    def exact(values):
        return [[Fraction(float(value)) for value in row] for row in values]

    def times(A, B):
        return [[sum(x * y for x, y in zip(row, column)) for column in zip(*B)] for row in A]

    K, penalty, target = exact(K_MR), exact(K_RR), exact(b.reshape(-1, 1))
    transposed = [list(column) for column in zip(*K)]
    A = times(transposed, times(exact(L), K))
    rows = [
        [a + Fraction(float(alpha)) * k for a, k in zip(A_row, K_row)] + c
        for A_row, K_row, c in zip(A, penalty, times(transposed, target))
    ]
    r = len(rows)
    for i in range(r):
        pivot = next(j for j in range(i, r) if rows[j][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(r):
            if j != i:
                factor = rows[j][i]
                rows[j] = [x - factor * y for x, y in zip(rows[j], rows[i])]
    return np.array([float(f[0]) for f in times(K, [[row[-1]] for row in rows])])


# --------------------------------------------------------------------------------------------------------------
# Relations
# --------------------------------------------------------------------------------------------------------------


def rbf(A, B, gamma):
    """exp(-gamma ‖a - b‖²) pair by pair."""
    return np.array([[np.exp(-gamma * np.sum((a - b) ** 2)) for b in B] for a in A])


def pairwise_value(name, K, G, same_rows, same_columns, pair, other):
    """The kernel of two pairs (u, v) and (u', v') as its definition reads."""
    (u, v), (s, t) = pair, other
    if name == "kronecker":
        return K[u, s] * G[v, t]
    if name == "symmetric":
        return 0.5 * (K[u, s] * G[v, t] + K[u, t] * G[v, s])
    if name == "antisymmetric":
        return 0.5 * (K[u, s] * G[v, t] - K[u, t] * G[v, s])
    if name == "cartesian":
        return K[u, s] * same_columns[v, t] + same_rows[u, s] * G[v, t]
    assert name == "sum"
    return K[u, s] + G[v, t]


def relation(K, G, Y, alpha, *, pairwise, compare, K_new, G_new, same_rows, same_columns):
    """Solve the dense system of all known pairs and predict every new pair."""
    weights = pairwise if isinstance(pairwise, dict) else {pairwise: 1.0}
    known = [(u, v) for u in range(Y.shape[0]) for v in range(Y.shape[1]) if not np.isnan(Y[u, v])]
    new = [(u, v) for u in range(K_new.shape[0]) for v in range(G_new.shape[0])]

    def matrix(pairs, K, G, rows, columns):
        return np.array(
            [
                [
                    sum(w * pairwise_value(name, K, G, rows, columns, a, b) for name, w in weights.items())
                    for b in known
                ]
                for a in pairs
            ]
        )

    L = np.eye(len(known))
    if compare is not None:
        side = 1 if compare == "rows" else 0
        group = np.array([pair[side] for pair in known])
        together = group[:, None] == group[None, :]
        L -= together / together.sum(axis=1)
    Q = matrix(known, K, G, np.eye(Y.shape[0]), np.eye(Y.shape[1]))
    y = np.array([Y[pair] for pair in known])
    a = L @ np.linalg.solve(L @ Q @ L + alpha * np.eye(len(known)), L @ y)
    return (matrix(new, K_new, G_new, same_rows, same_columns) @ a).reshape(K_new.shape[0], -1)


def two_step_without(rows, columns, Y, left, model):
    """Predictions of a two-step model whose missing labels are what it then fits there, by solving for them.

    With a comparison the fitted value has the mean of the labels for its level, as an intercept would.
    """
    sides = []
    options = zip(
        (model.row_params, model.column_params), (model.alpha_rows, model.alpha_columns), strict=True
    )
    for objects, name, (params, alpha) in zip((rows, columns), ("rows", "columns"), options, strict=True):
        K, n = rbf(objects, objects, params["gamma"]), objects.shape[0]
        centre = np.eye(n) - (1 / n if model.compare == name else 0.0)
        predict = K @ centre @ np.linalg.inv(centre @ K @ centre + alpha * np.eye(n)) @ centre
        sides.append((predict, centre @ predict + (np.eye(n) - centre)))
    predict, smooth = (np.kron(sides[0][k], sides[1][k]) for k in (0, 1))
    hidden, y = np.flatnonzero(left), Y.ravel().copy()
    y[hidden] = 0
    block = smooth[np.ix_(hidden, hidden)]
    y[hidden] = np.linalg.solve(np.eye(hidden.shape[0]) - block, smooth[hidden] @ y)
    return (predict @ y).reshape(Y.shape)


def greedy_selection(score, X, n_select, chosen):
    """Of each round the best score over all candidates, and the score of the one that was chosen.

    The choice of the caller is followed, so that equal scores do not part the ways.
    """
    best, taken = [], []
    for number in range(n_select):
        before = list(chosen[:number])
        scores = {j: score(X[:, [*before, j]]) for j in range(X.shape[1]) if j not in before}
        best.append(max(scores.values()))
        taken.append(scores[chosen[number]])
    return np.array(best), np.array(taken)


# --------------------------------------------------------------------------------------------------------------
# Bradley-Terry
# --------------------------------------------------------------------------------------------------------------


def bradley_terry_loss(f, pairs, weight=None, ties=None):
    """Σ w log(1 + e^{-(f_h - f_j)}), pair by pair; a tie is half a win each way."""
    total = 0.0
    for k, (h, j) in enumerate(pairs):
        w = 1.0 if weight is None else weight[k]
        win, loss = np.logaddexp(0, f[j] - f[h]), np.logaddexp(0, f[h] - f[j])
        total += w * (0.5 * (win + loss) if ties is not None and ties[k] else win)
    return total


def bradley_terry_mode(K, pairs, alpha, weight=None, ties=None):
    """Scores f = K a that minimise the loss + alpha aᵀ K a, and the minimum, by BFGS and a few steps of Newton."""
    from scipy.optimize import minimize

    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-10 * values.max()
    root = vectors[:, kept] * np.sqrt(values[kept])

    def objective(w):
        return bradley_terry_loss(root @ w, pairs, weight, ties) + alpha * w @ w

    found = minimize(
        objective, np.zeros(root.shape[1]), method="BFGS", options={"gtol": 1e-10, "maxiter": 5000}
    )
    w = found.x
    counts = np.ones(len(pairs)) if weight is None else weight
    share = np.ones(len(pairs)) if ties is None else np.where(ties, 0.5, 1.0)
    edges = root[pairs[:, 0]] - root[pairs[:, 1]]
    for _ in range(5):
        p = 1.0 / (1.0 + np.exp(-(edges @ w)))
        gradient = edges.T @ (counts * (p - share)) + 2 * alpha * w
        hessian = edges.T @ ((counts * p * (1 - p))[:, None] * edges) + 2 * alpha * np.eye(len(w))
        w = w - np.linalg.solve(hessian, gradient)
    return root @ w, objective(w)


def laplace_covariance(K, f, pairs, alpha, weight=None):
    """(K⁻¹ 2 alpha + L)⁻¹ without the inverse of K: (I + K L / 2 alpha)⁻¹ K / 2 alpha, with dense L."""
    m = K.shape[0]
    L = np.zeros((m, m))
    for k, (h, j) in enumerate(pairs):
        p = 1.0 / (1.0 + np.exp(f[j] - f[h]))
        _add_edge(L, np.zeros(m), h, j, (1.0 if weight is None else weight[k]) * p * (1 - p), 0.0)
    return np.linalg.solve(np.eye(m) + K @ L / (2 * alpha), K / (2 * alpha))


def answer_information(mean, variance):
    """H[E σ(d)] - E H[σ(d)] in bits by Gauss-Hermite quadrature, with the averages exact."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(101)
    p = 1.0 / (1.0 + np.exp(-(mean + np.sqrt(variance) * nodes)))
    weights = weights / weights.sum()

    def entropy(q):
        q = np.clip(q, 1e-300, 1 - 1e-16)
        return -(q * np.log2(q) + (1 - q) * np.log2(1 - q))

    return entropy(weights @ p) - weights @ entropy(p)


# ---------------------------------------------------------------------------------------------------------------
# A kernel that learns its metric
# ---------------------------------------------------------------------------------------------------------------


def rbf_gradient(X, Z, beta, gamma, S):
    """∇f(x) of f(x) = Σ β_j exp(-γ ‖(x - z_j) S‖²) for a matrix S, term by term."""
    gradients = np.zeros(X.shape)
    for i in range(len(X)):
        for j in range(len(Z)):
            difference = X[i] - Z[j]
            value = np.exp(-gamma * np.sum((difference @ S) ** 2))
            gradients[i] += beta[j] * value * (-2 * gamma) * (S @ S.T @ difference)
    return gradients


def learned_metric(X, y, qid, basis, gamma, alphas, *, full=False):
    """Train with weighting="item", take M = mean ∇f ∇fᵀ and S = M^(1/2), again for every alpha but the last.

    Returns S as a matrix, and the coefficients of the basis vectors of the last training.
    """
    n = X.shape[1]
    S = np.eye(n)
    L, b = dense_comparisons(y, qid, weighting="item")
    for round_number, alpha in enumerate(alphas):
        K_MR, K_RR = rbf(X @ S, X[basis] @ S, gamma), rbf(X[basis] @ S, X[basis] @ S, gamma)
        beta = reduced_set_solution(K_MR, K_RR, L, b, alpha)
        if round_number + 1 < len(alphas):
            gradients = rbf_gradient(X, X[basis], beta, gamma, S)
            M = sum(np.outer(g, g) for g in gradients) / len(gradients)
            if full:
                values, vectors = np.linalg.eigh(M)
                S = vectors * np.sqrt(np.maximum(values, 0.0))
            else:
                S = np.diag(np.sqrt(np.diag(M)))
            S = S / np.abs(S).max()
    return S, beta


# ---------------------------------------------------------------------------------------------------------------
# Combining rankers
# ---------------------------------------------------------------------------------------------------------------


def shrunk_weights(H, t, shrinkage):
    """Non-negative w that minimise ‖t - H w‖² + λ m ‖w - w̄ 1‖², by trying every set of members that is not zero."""
    m, k = H.shape
    column = H.sum(axis=1)
    common = max(float(column @ t), 0.0) / float(column @ column)
    best, found = np.inf, None
    for subset in itertools.product([False, True], repeat=k):
        free = np.flatnonzero(subset)
        w = np.zeros(k)
        if free.size:
            A = H[:, free].T @ H[:, free] + shrinkage * m * np.eye(free.size)
            w[free] = np.linalg.solve(A, H[:, free].T @ t + shrinkage * m * common)
        loss = np.sum((t - H @ w) ** 2) + shrinkage * m * np.sum((w - common) ** 2)
        if (w >= 0).all() and loss < best:
            best, found = loss, w
    return found


def shapley_values(predict, X, row):
    """Shapley values of f(x) - mean f over rows of X, by every order of the features."""
    m, n = X.shape
    total, orders = np.zeros(n), list(itertools.permutations(range(n)))
    for z in X:
        for order in orders:
            current = z.copy()
            for k in order:
                before = predict(current[None])[0]
                current[k] = X[row, k]
                total[k] += predict(current[None])[0] - before
    return total / (m * len(orders))


def parse_statements(linkage, context):
    """How often each feature of a parse is true, every link and every token looked at by itself."""
    words = [token.text.lower() for token in linkage.tokens]
    tags = [token.tag for token in linkage.tokens]
    steps = [1, 2, 3, 4, 5, 6, 6, 8, 8, 8, 11, 11, 11, 11, 11]

    def tag(k):
        return tags[k] if 0 <= k < len(tags) else "#"

    def kind_of(label):
        return re.match(r"[A-Z]+|.*", label).group()

    said = Counter()
    for i, j, label in linkage.links:
        kind, at = kind_of(label), (steps[j - i - 1] if j - i <= 15 else 16)
        w, v, s, t = f'"{words[i]}"', f'"{words[j]}"', tags[i], tags[j]
        said.update([f"label {label}", f"kind {kind}", f"label {label}: {s} {t}", f"{kind} at {at}"])
        said.update([f"{s} {t}", f"{w} {v}", f"{w} {t}", f"{s} {v}", f"{s} {t} at {at}"])
        said.update([f"{kind}: {s} {t}", f"{kind}: {w} _", f"{kind}: _ {v}"])
        if context:
            for left in ("", tag(i - 1) + " "):
                for inner in ("", " " + tag(i + 1)):
                    for outer in ("", tag(j - 1) + " "):
                        for right in ("", " " + tag(j + 1)):
                            n_left, n_right = bool(left) + bool(inner), bool(outer) + bool(right)
                            if n_left <= 1 and n_right <= 1 and n_left + n_right >= 1:
                                said[f"{left}[{s}]{inner} .. {outer}[{t}]{right}"] += 1
            said.update([f"{w} {t} at {at}", f"{s} {v} at {at}", f"{kind}: {s} {t} at {at}"])
            for between in {tags[k] for k in range(i + 1, j)}:
                said.update([f"{s} ({between}) {t}", f"{kind} ({between})"])
    for k, word in enumerate(words):
        joined = sorted(
            [(j, kind_of(label) + "+") for i, j, label in linkage.links if i == k]
            + [(i, kind_of(label) + "-") for i, j, label in linkage.links if j == k]
        )
        if not joined:
            said.update([f"{tags[k]} alone", f'"{word}" alone'])
        if context:
            said[f"{tags[k]} has " + " ".join(name for _, name in joined)] += 1
            said.update([f"{tags[k]} has {len(joined)} links", f'"{word}" has {len(joined)} links'])
            for p in range(len(joined) - 1):
                (a, first), (b, second) = joined[p : p + 2]
                n_left = [a < k, b < k].count(True)
                said.update([f"{tags[k]}: {first} then {second}", f"{first} then {second}"])
                said[f"{tags[k]} between {tags[a]} and {tags[b]}, {n_left} left"] += 1
    return said


def meetings(y, scores, folds, clusters) -> dict[frozenset, tuple[float, int]]:
    """Pairs of rows with different y in one fold, by their two clusters: how many are in order, of how many."""
    found = {}
    for i, j in itertools.combinations(range(len(y)), 2):
        if y[i] != y[j] and folds[i] == folds[j] and clusters[i] != clusters[j]:
            wins, pairs = found.get(frozenset((clusters[i], clusters[j])), (0.0, 0))
            won = 0.5 + 0.5 * np.sign(y[i] - y[j]) * np.sign(scores[i] - scores[j])
            found[frozenset((clusters[i], clusters[j]))] = (wins + won, pairs + 1)
    return found


def variance_inside_folds(y, scores, folds, clusters) -> float:
    """Of the share of pairs in order: the sum over any two meetings that have a cluster in common."""
    found = meetings(y, scores, folds, clusters)
    total = sum(pairs for _, pairs in found.values())
    share = sum(wins for wins, _ in found.values()) / total
    error = {key: (wins - share * pairs) / total for key, (wins, pairs) in found.items()}
    related = [(a, b) for a in found for b in found if a & b]
    squares = sum(value**2 for value in error.values())
    known = 1 - sum(found[a][1] * found[b][1] for a, b in related) / total**2
    return max(sum(error[a] * error[b] for a, b in related), squares) / known if known > 1e-9 else math.inf


def query_interval(y, held_out, fitted, qid) -> tuple[float, float]:
    """95 % interval of the mean share of pairs in order over held-out queries, pair by pair and query by query."""
    from scipy.stats import t as student

    shares, worth, moments = [], [], np.zeros((2, 3))
    for label in dict.fromkeys(np.asarray(qid).tolist()):
        rows = np.flatnonzero(np.asarray(qid) == label)
        pairs = list(itertools.combinations(rows, 2))
        untied = [(i, j) for i, j in pairs if y[i] != y[j]]
        if not untied:
            continue
        right = [0.5 + 0.5 * np.sign(y[i] - y[j]) * np.sign(held_out[i] - held_out[j]) for i, j in untied]
        shares.append(np.mean(right))
        # The variance of the pairs in order minus those out of order, over all orders of the rows.
        k, ties = len(rows), np.unique(y[rows], return_counts=True)[1]
        variance = (k * (k - 1) * (2 * k + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
        worth.append((1 / len(untied), variance / len(untied) ** 2))
        scale = sum((y[i] - y[j]) ** 2 for i, j in pairs) ** 0.5
        for row, f in zip(moments, (held_out, fitted), strict=True):
            for i, j in pairs:
                # Every query counts the same: its y have unit length, its predictions the mean over its pairs.
                a, b = (y[i] - y[j]) / scale, (f[i] - f[j]) / len(pairs) ** 0.5
                row += a * b, a * a, b * b
    r = [product / (left * right) ** 0.5 for product, left, right in moments]
    z = [one / (1 - one**2) ** 0.5 for one in r]
    lost = min(max(0.0, 1 - z[0] / z[1]), 3.0)
    n, mean = len(shares), float(np.mean(shares))
    c = (n * mean + 0.5) / (n + 1)
    expected = np.mean([c * (1 - c) * (one + 4 * c * (1 - c) * (other - one)) for one, other in worth])
    variance = ((n - 1) * np.var(shares, ddof=1) + 3 * expected) / (n + 2) / n * (1 + lost)
    # At least what this many pairs would show if all were independent.
    trials = n**2 / sum(one for one, _ in worth)
    share = (mean * trials + 1) / (trials + 2)
    variance = max(variance, share * (1 - share) / (trials + 2) * (1 + lost))
    half = student.ppf(0.975, n - 1) * variance**0.5
    return max(0.0, mean - half), min(1.0, mean + half)


def nested_choice(tables, folds, score) -> np.ndarray:
    """Held-out predictions at the setting that the other parts of the folds choose; ``score(rows, f)`` of some rows.

    ``tables`` holds the predictions (m,) of each setting, with stronger regularisation later: ties go there.
    """
    numbers = np.array_split(np.arange(len(folds)), min(10, len(folds)))
    parts = [np.concatenate([folds[k] for k in some]) for some in numbers]
    chosen = np.full(len(tables[0]), np.nan)
    for part in parts:
        others = [other for other in parts if other is not part]
        means = []
        for f in tables:
            scores = np.array([_or_nan(score, rows, f[rows]) for rows in others])
            sizes = np.array([len(rows) for rows in others])[~np.isnan(scores)]
            means.append(np.average(scores[~np.isnan(scores)], weights=sizes))
        best = max(range(len(tables)), key=lambda k: (round(means[k], 12), k))
        chosen[part] = tables[best][part]
    return chosen


def with_the_choice(interval, value, tables, folds, score, chosen, limits=(0.0, 1.0)):
    """The ends of an interval, moved by 1.96 D as the other side of a right angle: D is the best score minus that of
    what was chosen, as means over parts by their rows."""
    numbers = np.array_split(np.arange(len(folds)), min(10, len(folds)))
    parts = [np.concatenate([folds[k] for k in some]) for some in numbers]
    scored = [part for part in parts if not np.isnan(_or_nan(score, part, chosen[part]))]

    def mean(f):
        return np.average([score(part, f[part]) for part in scored], weights=[len(part) for part in scored])

    shift = 1.959963984540054 * max(max(map(mean, tables)) - mean(chosen), 0.0)
    low, high = value - interval[0], interval[1] - value
    return max(limits[0], value - np.hypot(low, shift)), min(limits[1], value + np.hypot(high, shift))


def _or_nan(score, rows, f) -> float:
    try:
        return score(rows, f)
    except ValueError:  # nothing to compare
        return np.nan


# --------------------------------------------------------------------------------------------------------------
# Ratings
# --------------------------------------------------------------------------------------------------------------


def rating_design(n_items, pairs, covariates=None):
    """x_k = e_a - e_b, followed by the covariates of the battle, one dense row for each battle."""
    X = np.zeros((len(pairs), n_items))
    for row, (a, b) in enumerate(pairs):
        X[row, a] += 1.0
        X[row, b] -= 1.0
    return X if covariates is None else np.hstack([X, covariates])


def rating_mode(X, share, weight, penalty):
    """Minimum of the log loss plus Σ penalty_j θ_j², by plain Newton steps on dense matrices."""
    theta = np.zeros(X.shape[1])
    for _ in range(200):
        p = 1.0 / (1.0 + np.exp(-X @ theta))
        gradient = X.T @ (weight * (p - share)) + 2.0 * penalty * theta
        H = (X * (weight * p * (1 - p))[:, None]).T @ X + 2.0 * np.diag(penalty)
        theta = theta - np.linalg.solve(H, gradient)
    return theta, H


def rating_sandwich(X, share, weight, theta, H, penalty, cluster):
    """H⁻¹ (G / (G - 1) Σ g gᵀ + 2 penalty) H⁻¹, cluster by cluster."""
    p = 1.0 / (1.0 + np.exp(-X @ theta))
    meat = 2.0 * np.diag(penalty)
    labels = sorted(set(cluster))
    for label in labels:
        g = sum(weight[k] * (share[k] - p[k]) * X[k] for k in range(len(cluster)) if cluster[k] == label)
        meat = meat + len(labels) / (len(labels) - 1) * np.outer(g, g)
    inverse = np.linalg.inv(H)
    return inverse @ meat @ inverse


def krippendorff_by_pairs(units):
    """Krippendorff's alpha of nominal values: observed over expected disagreement, pair by pair of values."""
    units = [values for values in units if len(values) > 1]
    values = [value for unit in units for value in unit]
    n = len(values)
    observed = sum(
        sum(one != other for one, other in itertools.permutations(unit, 2)) / (len(unit) - 1)
        for unit in units
    )
    expected = sum(one != other for one, other in itertools.permutations(values, 2)) / (n - 1)
    return 1.0 - observed / expected


def elo_by_hand(games, k=32.0):
    """Ratings after games (a, b, share of a), one after the other."""
    ratings = {}
    for a, b, share in games:
        r_a, r_b = ratings.get(a, 0.0), ratings.get(b, 0.0)
        p = 1.0 / (1.0 + 10.0 ** ((r_b - r_a) / 400.0))
        ratings[a], ratings[b] = r_a + k * (share - p), r_b - k * (share - p)
    return ratings


def plackett_luce_loss(f, rankings):
    """-log P of rankings given as lists of tiers, stage by stage; the last tier has no order."""
    total = 0.0
    for tiers in rankings:
        rest = [item for tier in tiers for item in tier]
        for tier in tiers[:-1]:
            total += np.log(np.sum(np.exp(f[rest]))) - f[tier[0]]
            rest.remove(tier[0])
    return total


# --------------------------------------------------------------------------------------------------------------
# Sets and ranks with a guarantee
# --------------------------------------------------------------------------------------------------------------


def set_holds(y, shown, target, k) -> bool:
    """Whether the rows shown of a query are what the target asks for, by its definition."""
    if target == "any-relevant":
        return bool((y[shown] > 0).any())
    if target == "all-relevant":
        return not (y[~shown] > 0).any()
    k = 1 if target == "best" else k
    return sorted(y[shown], reverse=True)[:k] == sorted(y, reverse=True)[:k]


def can_be_held(y, target) -> bool:
    """Whether a query counts."""
    return bool((y > 0).any()) if "relevant" in target else len(set(y)) > 1


def conformal_threshold(refit_and_predict, y, qid, coverage, target, k=1) -> float:
    """Refit without every query, widen its set row by row until it holds what it must, take the quantile."""
    needs = []
    for query in np.unique(qid):
        rows = qid == query
        if not can_be_held(y[rows], target):
            continue
        scores = refit_and_predict(~rows, rows)
        gaps = scores.max() - scores
        needs.append(min(t for t in gaps if set_holds(y[rows], gaps <= t, target, k)))
    place = next(n for n in range(1, len(needs) + 1) if n / (len(needs) + 1) >= coverage - 1e-12)
    return sorted(needs)[place - 1]


def rank_interval(scores, row, width) -> tuple[int, int]:
    """One more than the rows that are clearly ahead, and all but those clearly behind."""
    ahead = sum(other > scores[row] + width for other in scores)
    behind = sum(other < scores[row] - width for other in scores)
    return 1 + ahead, len(scores) - behind


def needed_rank_width(y, scores, row) -> float:
    """The least width at which the interval has one of the ranks that the row may have among those with its y."""
    ranks = range(1 + sum(y > y[row]), len(y) - sum(y < y[row]) + 1)
    for width in sorted({0.0, *np.abs(scores - scores[row])}):
        low, high = rank_interval(scores, row, width * (1 + 1e-12) + 1e-12)
        if any(low <= rank <= high for rank in ranks):
            return width
    raise AssertionError


def loss_of_shown(y, scores, shown, loss, k=None) -> float:
    """Share of relevant rows that are not shown, or what their list lacks in NDCG."""
    if loss == "recall":
        wanted = min((y > 0).sum(), k or len(y))
        return 1 - min((y[shown] > 0).sum(), wanted) / wanted
    ideal = sum((2**value - 1) / np.log2(place + 2) for place, value in enumerate(sorted(y, reverse=True)))
    order = np.argsort(-scores)
    return (
        1
        - sum((2 ** y[row] - 1) / np.log2(place + 2) for place, row in enumerate(order) if shown[row]) / ideal
    )


def gaussian_process_variances(K, L, alpha, n_train):
    """Variances of all items for unit noise, by inverting the precision: L of the training rows, K⁻¹ of the prior."""
    precision = alpha * np.linalg.inv(K)
    precision[:n_train, :n_train] += L
    return np.linalg.inv(precision)


def boosted_scores(codes, t, qid, n_trees, leaves, rate, least, ridge, looked_at=None, begun=None):
    """Scores of the training rows after some boosted trees, every split tried by going through the rows.

    ``looked_at`` are the features of each tree, all by default; ``begun`` scores that the trees add to.
    """
    every, f = codes, np.zeros(len(t)) if begun is None else begun.copy()
    for tree in range(n_trees):
        codes = every if looked_at is None else every[:, looked_at[tree]]
        g = t - f
        for query in np.unique(qid):
            g[qid == query] -= g[qid == query].mean()
        found = [np.arange(len(t))]
        root = _best_division(codes, g, found[0], least, ridge)
        while len(found) < leaves:
            splits = [_best_division(codes, g, rows, least, ridge) for rows in found]
            place = int(np.argmax([gain for gain, *_ in splits]))
            gain, left, right = splits[place]
            if not gain > 1e-10 * root[0]:
                break
            found[place] = left
            found.append(right)
        for rows in found:
            f[rows] += rate * g[rows].sum() / (len(rows) + ridge)
    return f


def _best_division(codes, g, rows, least, ridge):
    best = (0.0, rows, rows)
    for feature in range(codes.shape[1]):
        for code in range(int(codes.max())):
            goes = codes[rows, feature] <= code
            left, right = rows[goes], rows[~goes]
            if min(len(left), len(right)) < least:
                continue
            gain = sum(g[part].sum() ** 2 / (len(part) + ridge) for part in (left, right))
            gain -= g[rows].sum() ** 2 / (len(rows) + ridge)
            if gain > best[0] + 1e-12:
                best = (gain, left, right)
    return best


def kernel_and_curves(X, basis, gamma, metric, features, n_knots=10, stiffness=40.0):
    """Columns of kernel values and of bumps along features, one by one, and their penalty."""
    columns = [np.exp(-gamma * (((X - z) * metric) ** 2).sum(axis=1)) for z in basis]
    K_RR = np.array([[np.exp(-gamma * (((x - z) * metric) ** 2).sum()) for z in basis] for x in basis])
    for j in features:
        knots = [np.quantile(X[:, j], 0.01 + 0.98 * k / (n_knots - 1)) for k in range(n_knots)]
        steps = [b - a for a, b in zip(knots[:-1], knots[1:])]
        width = max(1.5 * np.median(steps), 0.5 * (knots[-1] - knots[0]) / n_knots)
        columns += [metric[j] * np.exp(-0.5 * ((X[:, j] - z) / width) ** 2) for z in knots]
    penalty = stiffness * np.eye(len(columns))
    penalty[: len(basis), : len(basis)] = K_RR
    return np.column_stack(columns), penalty


def drawn_rows(X, codes, share, is_global):
    """Numbers of the rows of a chunk that a share of its queries takes, by arithmetic on Python's whole numbers.

    A row is hashed by its 64-bit words, their bytes backwards, each times an odd number; a query by the sum of its
    mixed rows. The second, third, ... of those with the same hash in a chunk has another one. One global ranking has
    rows instead of queries.
    """
    mask = 2**64 - 1
    factors = [
        2 * int(one) + 1 for one in np.random.default_rng(0).integers(2**63, size=X.shape[1], dtype=np.uint64)
    ]
    hashes = []
    for row in X:
        words = [int.from_bytes(struct.pack("<d", value), "big") for value in row]
        hashes.append(sum(word * factor for word, factor in zip(words, factors)) & mask)
    if is_global:
        units = [(hashes[i], [i]) for i in range(len(X))]
    else:
        queries = [[i for i in range(len(X)) if codes[i] == code] for code in sorted(set(codes))]
        units = [(sum(_splitmix(hashes[i]) for i in rows) & mask, rows) for rows in queries]
    taken, seen = [], Counter()
    for key, rows in units:
        other = (key + seen[key] * 0x9E3779B97F4A7C15) & mask
        seen[key] += 1
        if _splitmix(other) >> 11 < int(share * 2**53):  # shares are resolved to 2^-53
            taken += rows
    return sorted(taken)


def _splitmix(key):
    """The finaliser of splitmix64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = (key ^ (key >> shift)) * factor & (2**64 - 1)
    return key ^ (key >> 31)


def effective_clusters(X, v, H, contrast, cluster):
    """(Σ s_c)² / Σ s_c² with s_c = Σ_{k in c} v_k (x_k · H⁻¹ contrast)², battle by battle."""
    a = np.linalg.solve(H, contrast)
    s = {}
    for x, curvature, label in zip(X, v, cluster):
        s[label] = s.get(label, 0.0) + curvature * float(x @ a) ** 2
    told = np.array(list(s.values()))
    return float(told.sum() ** 2 / np.square(told).sum())


def rating_by_newton(X, share, weight, P, cluster, n_items, margin=None):
    """Strengths by plain Newton steps with prior precision P, covariance relative to the mean, effective clusters.

    With margins least squares in units of their own noise, whose variance is the mean square of the residuals.
    """
    theta, noise, width = np.zeros(X.shape[1]), 1.0, 1.702
    # A direction that nothing but the prior holds, which differences do not depend on.
    common = np.r_[np.ones(n_items), np.zeros(X.shape[1] - n_items)]
    if margin is not None:
        A = (X * weight[:, None]).T @ X / width**2 + P
        u = np.linalg.solve(A, X.T @ (weight * margin) / width**2)
        counts = bool((weight == np.round(weight)).all())
        n = weight.sum() if counts else weight.sum() ** 2 / (weight**2).sum()
        freedom = max(n - (X.shape[1] - 1), 0.1 * n) / n
        noise = np.sqrt((weight * (margin - X @ u) ** 2).sum() / (weight.sum() * freedom))
        theta, v = u * width / noise, weight / width**2
        pull = v * (margin * width / noise - X @ theta)
    else:
        for _ in range(60):
            p = 1.0 / (1.0 + np.exp(-X @ theta))
            H = (X * (weight * p * (1 - p))[:, None]).T @ X + P + 1e-9 * np.outer(common, common)
            theta = theta - np.linalg.solve(H, X.T @ (weight * (p - share)) + P @ theta)
        p = 1.0 / (1.0 + np.exp(-X @ theta))
        v, pull = weight * p * (1 - p), weight * (share - p)
    H = (X * v[:, None]).T @ X + P
    informed = [np.outer(x, x) * curvature for x, curvature in zip(X, v)]
    return _rating_summary(theta, H, P, X * pull[:, None], informed, cluster, n_items)


def trusted_by_newton(pairs, share, unit, trusted, P, cluster, n_items):
    """Trusted judgements whose shares are corrected by what others say of the same battles, judgement by judgement."""
    said, people = {}, []
    for k, (a, b) in enumerate(pairs):
        first = share[k] if a < b else 1.0 - share[k]
        if trusted[k]:
            people.append((min(a, b), max(a, b), first, unit[k]))
        else:
            said.setdefault((min(a, b), max(a, b)), {}).setdefault(unit[k], []).append(first)
    c, phi = np.zeros(len(people)), np.zeros(len(people))
    for k, (a, b, _, battle) in enumerate(people):
        others = {one: np.mean(votes) for one, votes in said.get((a, b), {}).items()}
        both = {one for x, y, _, one in people if (x, y) == (a, b) and one in others}
        if battle in others:
            c[k] = others[battle] - np.mean(list(others.values()))
            phi[k] = 1.0 - len(both) / len(others)
    X = rating_design(n_items, [(a, b) for a, b, _, _ in people])
    y, w = np.array([one[2] for one in people]), np.ones(len(people))
    alone = rating_by_newton(X, y, w, P, None, n_items)
    total = (phi * c * c).sum()
    slope = (phi * c * (y - 1.0 / (1.0 + np.exp(-X @ alone["theta"])))).sum() / total if total else 0.0
    kappa = min(max(slope, 0.0), 1.0)
    found = rating_by_newton(X, y - kappa * c, w, P, cluster, n_items)
    gain, model = kappa * (2.0 * slope - kappa), found["model"]
    helped = model - model @ (X * (gain * phi * c * c)[:, None]).T @ X @ model
    if cluster is not None:
        more = (X * (gain * (1.0 - phi) * c * c)[:, None]).T @ X
        found["covariance"] = found["covariance"] + model @ more @ model
    else:
        found["covariance"] = helped
    return found | {"model": helped, "kappa": kappa}


def davidson_by_newton(X, U, share, weight, P, Q, cluster, n_items):
    """Davidson's model as a choice among three outcomes, whose utilities are linear in all parameters together.

    P and Q are the prior precisions of strengths with coefficients, and of what makes ties likely.
    """
    l, n = X.shape
    utilities = [np.hstack([X / 2, 0 * U]), np.hstack([0 * X, U]), np.hstack([-X / 2, 0 * U])]
    came = np.rint(2 - 2 * share).astype(int)
    penalty = np.zeros((n + U.shape[1],) * 2)
    penalty[:n, :n], penalty[n:, n:] = P, Q
    common = np.r_[np.ones(n_items), np.zeros(len(penalty) - n_items)]
    theta = np.zeros(len(penalty))
    for _ in range(80):
        g, informed = [], []
        for k in range(l):
            A = np.array([one[k] for one in utilities])
            p = np.exp(A @ theta - (A @ theta).max())
            p /= p.sum()
            g.append(weight[k] * (A[came[k]] - p @ A))
            informed.append(weight[k] * (A.T @ np.diag(p) @ A - np.outer(p @ A, p @ A)))
        H = sum(informed) + penalty
        step = np.linalg.solve(H + 1e-9 * np.outer(common, common), sum(g) - penalty @ theta)
        theta = theta + step
        if np.abs(step).max() < 1e-11:
            break
    told = _rating_summary(theta, H, penalty, np.array(g), informed, cluster, n_items)
    kept = {name: None if told[name] is None else told[name][..., :n] for name in ("theta", "effective")}
    return kept | {name: told[name][:n, :n] for name in ("covariance", "model")}


def ranking_by_newton(rankings, weight, P, cluster):
    """The same of rankings, stage by stage; the last two places of a ranking are its last stage."""
    n = P.shape[0]
    theta = np.zeros(n)
    for step in range(61):
        g, informed = np.zeros((len(rankings), n)), [np.zeros((n, n)) for _ in rankings]
        for k, ranking in enumerate(rankings):
            for first in range(len(ranking) - 1):
                rest = ranking[first:]
                p = np.zeros(n)
                p[rest] = np.exp(theta[rest]) / np.exp(theta[rest]).sum()
                g[k] += weight[k] * (np.eye(n)[ranking[first]] - p)
                informed[k] += weight[k] * (np.diag(p) - np.outer(p, p))
        H = sum(informed) + P
        if step < 60:
            theta = theta + np.linalg.solve(H + 1.0, g.sum(axis=0) - P @ theta)
    return _rating_summary(theta, H, P, g, informed, cluster, n)


def _rating_summary(theta, H, P, g, informed, cluster, n_items):
    if np.count_nonzero(P) <= len(theta):
        # Strengths alike a priori: differences do not depend on what is common to all, which the prior alone holds.
        common = np.r_[np.ones(n_items), np.zeros(len(theta) - n_items)]
        H = H + np.outer(common, common)
    inverse, centre = np.linalg.inv(H), np.eye(len(theta))
    centre[:n_items, :n_items] -= 1.0 / n_items
    C = model = centre @ inverse @ centre.T
    effective = None
    if cluster is not None:
        labels = sorted(set(cluster.tolist()))
        sums = [g[cluster == label].sum(axis=0) for label in labels]
        meat = len(labels) / (len(labels) - 1) * sum(np.outer(one, one) for one in sums) + P
        C = centre @ inverse @ meat @ inverse @ centre.T
        A = centre @ inverse
        told = np.array(
            [
                np.diag(A @ sum(one for one, c in zip(informed, cluster) if c == label) @ A.T)
                for label in labels
            ]
        )
        effective = told.sum(axis=0) ** 2 / np.square(told).sum(axis=0)
    return {"theta": centre @ theta, "covariance": C, "model": model, "effective": effective}


# --------------------------------------------------------------------------------------------------------------
# Several views
# --------------------------------------------------------------------------------------------------------------


def co_regularised(features, y, qid, alpha, agreement, **options):
    """Predictions of every view that minimise the co-regularised loss, shape (views, m): all residuals in one list."""
    m, ends = len(y), np.cumsum([0, *(F.shape[1] for F in features)])
    known = np.flatnonzero(~np.isnan(y))
    wide = [np.zeros((m, ends[-1])) for _ in features]
    for F, columns, first in zip(features, wide, ends, strict=False):
        columns[:, first : first + F.shape[1]] = F
    rows, targets = [], []
    for F in wide:
        L, _ = dense_comparisons(y[known], qid[known], **options)
        for i, j in itertools.combinations(range(len(known)), 2):
            if L[i, j] == 0:
                continue
            difference = y[known[i]] - y[known[j]]
            wanted = np.sign(difference) if options.get("cost") == "unit" else difference
            rows.append(np.sqrt(-L[i, j]) * (F[known[i]] - F[known[j]]))
            targets.append(np.sqrt(-L[i, j]) * wanted)
    for F, G in itertools.combinations(wide, 2):
        rows.extend(np.sqrt(agreement) * (F - G)[np.isnan(y)])
        targets.extend([0.0] * int(np.isnan(y).sum()))
    rows.extend(np.sqrt(alpha) * np.eye(ends[-1]))
    targets.extend([0.0] * int(ends[-1]))
    w = np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)[0]
    return np.array([F @ w for F in wide])


def logrank(times, events, groups):
    """Statistic, observed and expected events of the log-rank test, a sum over the times of events."""
    labels = np.unique(groups)
    k = labels.size
    observed, expected, V = np.zeros(k), np.zeros(k), np.zeros((k, k))
    for t in np.unique(times[events]):
        n = np.array([np.sum((times >= t) & (groups == g)) for g in labels], dtype=float)
        d = np.array([np.sum((times == t) & events & (groups == g)) for g in labels], dtype=float)
        N, D = n.sum(), d.sum()
        observed += d
        expected += D * n / N
        if N > 1:
            for g in range(k):
                for h in range(k):
                    V[g, h] += D * (N - D) / (N - 1) * ((g == h) * n[g] / N - n[g] * n[h] / N**2)
    u = (observed - expected)[1:]
    return u @ np.linalg.solve(V[1:, 1:], u), observed, expected
