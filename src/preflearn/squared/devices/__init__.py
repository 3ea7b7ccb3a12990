"""The squared-loss learners on arrays of other libraries: PyTorch tensors on a GPU, through the array API standard.

The same quadratic form as in `squared`, by operations of the standard. What is compared is worked out on the
host, in O(m); kernel blocks are formed on the device and discarded, so that neither m × m nor m × r has to fit there
unless it is factorised.
"""
