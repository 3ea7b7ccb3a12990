"""The slow and obvious versions that every shortcut is tested against."""

from __future__ import annotations

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
            # The dense inverse leaves rounding errors where no walk leads; they are no weights.
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
        (i, j)
        for i in range(len(y))
        for j in range(i)
        if qid[i] == qid[j] and (tied_count or y[i] != y[j])
    ]


def dense_comparisons(y, qid, *, cost="magnitude", ties="include", weighting="pair"):
    """L and b, added up pair by pair."""
    m = len(y)
    L, b = np.zeros((m, m)), np.zeros(m)
    pairs = counted_pairs(y, qid, cost=cost, ties=ties)
    for i, j in pairs:
        n_rows = sum(q == qid[i] for q in qid)
        n_pairs = sum(qid[k] == qid[i] for k, _ in pairs)
        weight = {"pair": 1.0, "item": 1.0 / n_rows, "query": 1.0 / n_pairs}[weighting]
        difference = y[i] - y[j]
        target = np.sign(difference) if cost == "unit" else difference
        if cost == "relative":
            weight /= difference**2
        _add_edge(L, b, i, j, weight, target)
    return L, b


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


def kernel_solution(K, L, b, alpha):
    """a with (L K + alpha I) a = b."""
    return np.linalg.solve(L @ K + alpha * np.eye(len(K)), b)


def feature_solution(features, L, b, alpha):
    """w with (Φᵀ L Φ + alpha I) w = Φᵀ b."""
    n = features.shape[1]
    return np.linalg.solve(features.T @ L @ features + alpha * np.eye(n), features.T @ b)


def reduced_set_solution(K_MR, K_RR, L, b, alpha):
    """β that minimises the loss of f = K_MR β plus alpha βᵀ K_RR β, by the normal equations (least norm)."""
    return np.linalg.lstsq(K_MR.T @ L @ K_MR + alpha * K_RR, K_MR.T @ b, rcond=None)[0]


def positions(scores, qid):
    """1 + the number of better rows of the same query."""
    return [1 + sum(qid[j] == qid[i] and scores[j] > scores[i] for j in range(len(scores))) for i in range(len(scores))]


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
        result = linprog(cost, A_ub=np.array(rows), b_ub=limits, bounds=bounds, method="highs", options=options)
        if result.status == 0:
            return unit * result.fun
    raise AssertionError(result.message)


# ------------------------------------------------------------------------------------------------------------------
# LETOR text, line by line with regular expressions and float()
# ------------------------------------------------------------------------------------------------------------------


class LetorFault(Exception):
    """The line of the first fault, from 1."""


def letor_rows(data, *, missing=None, allow_unknown=False):
    """[(line, target, query or None, {index: value}, comment)], or LetorFault."""
    import re

    number = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
    nothing = {b"", b"na", b"n/a", b"nan", b"null", b"none"}

    def read(text, line, instead):
        if number.fullmatch(text) and abs(float(text)) != float("inf"):
            return float(text)
        if text.lower() in nothing and instead is not None:
            return instead
        raise LetorFault(line)

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
            raise LetorFault(line)
        target = read(tokens.pop(0), line, float("nan") if allow_unknown else None)
        query = None
        if tokens and tokens[0].startswith(b"qid:"):
            token = tokens.pop(0)
            if not re.fullmatch(rb"qid:-?[0-9]{1,18}", token):
                raise LetorFault(line)
            query = int(token[4:])
        features = {}
        for token in tokens:
            pair = re.fullmatch(rb"([0-9]+):(.+)", token, re.DOTALL)
            if pair is None or not max([0, *features]) < int(pair[1]) <= 2**31 - 2:
                raise LetorFault(line)
            features[int(pair[1])] = read(pair[2], line, missing)
        if rows and (query is None) != (rows[0][2] is None):
            raise LetorFault(line)
        try:
            rows.append((line, target, query, features, comment.decode().strip()))
        except UnicodeDecodeError:
            raise LetorFault(line) from None
    if len(rows) > 1 and lines[-1]:
        lengths = {len(features) for _, _, _, features, _ in rows[:-1]}
        last, *_, features, _ = rows[-1]
        if last == len(lines) and len(lengths) == 1 and len(features) < min(lengths):
            raise LetorFault(last)
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


def tau_b_of_query(y, scores):
    concordant, discordant, _, untied_y, untied_scores = pair_counts(y, scores)
    return (concordant - discordant) / np.sqrt(untied_y * untied_scores) if untied_y * untied_scores else np.nan


def mean_over_tie_orders(value_of_list, y, scores):
    """Mean of ``value_of_list(y in order of the list)`` over every order in which scores never rise."""
    from itertools import groupby, permutations, product

    rows = sorted(range(len(y)), key=lambda row: -scores[row])
    ties = [list(group) for _, group in groupby(rows, key=lambda row: scores[row])]
    lists = [
        [y[row] for group in choice for row in group] for choice in product(*(permutations(tie) for tie in ties))
    ]
    return sum(map(value_of_list, lists)) / len(lists)


def ndcg_of_list(y, k=None, gain="exponential"):
    def dcg(grades):
        gains = [2.0**g - 1 if gain == "exponential" else g for g in grades]
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
        stops = (2.0**grade - 1) / 2.0**max_grade
        total += reads_on * stops / (position + 1)
        reads_on *= 1 - stops
    return total
