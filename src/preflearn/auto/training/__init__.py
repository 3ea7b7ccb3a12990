"""From data to a model, an honest estimate and a comparison: what ``preflearn train`` does, for programs.

``train`` is the algorithm, one sequence for all, and what it asks of one learner or of several candidates; ``ranking``
and ``preference`` answer what it asks of the data, and ``parts`` makes a ranking of a table that does not fit into
memory. ``preparation`` settles the learner, the scaling and the kernel, ``conclusions`` sums up, and ``options`` lists
the options.
"""
