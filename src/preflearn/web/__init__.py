"""Pages and services in a browser: `preflearn ask` and `preflearn serve` (extra ``web``).

Items are read by ``items``, answers kept by ``answers``, what the model makes of them is the ``session``, and ``app``
turns HTTP into calls of the session. ``serving`` answers requests with the scores of a saved model.
"""
