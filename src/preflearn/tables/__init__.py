"""Tables in, scores and models out: files and data frames, encoders of columns, model files.

Reading goes file → blocks → data: ``formats`` turns each kind of file into blocks of rows, ``ranking`` puts blocks
together, all at once or in chunks of whole queries; ``encoding`` turns columns into numbers.
"""
