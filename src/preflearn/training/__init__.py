"""From data to a model, an honest estimate and a comparison: what ``preflearn train`` does, for programs.

``train`` is the algorithm, one path for rankings and preferences; ``ranking`` and ``preference`` say what differs
between them, ``preparation`` what is done before the learner, ``checks`` what is refused, ``options`` what may be
asked.
"""
