"""From data to a model, an honest estimate and a comparison: what ``preflearn train`` does, for programs.

``train`` is the algorithm, one sequence for all; ``ranking`` and ``preference`` answer what it asks of the data
(``problem`` lists the questions), ``automatic`` what it asks of several candidates instead of one learner.
``preparation`` settles the learner, the scaling and the kernel, ``conclusions`` sums up, ``details`` adds what only a
page shows, and ``options`` lists the options.
"""
