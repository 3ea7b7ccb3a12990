"""The squared-loss learners on arrays of other libraries: PyTorch tensors on a GPU, through the array API standard.

The same quadratic form as in `core`, with operations of the standard. What is compared with what is worked out on the
host, in O(m); kernel blocks are formed on the device and discarded, so that neither m × m nor m × r has to fit there
unless it is factorised.
"""
