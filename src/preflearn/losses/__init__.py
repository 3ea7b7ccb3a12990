"""Losses over pairs: hinge, squared hinge and logistic, of rows with scores and of listed preferences."""
