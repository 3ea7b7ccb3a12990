"""Losses over pairs: hinge and squared hinge, of rows with scores and of listed preferences."""
