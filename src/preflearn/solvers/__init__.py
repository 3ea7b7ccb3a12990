"""How a learner's problem is solved: the choice of solver, and what each one does with data and comparisons."""
