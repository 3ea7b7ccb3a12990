"""What a fitted model looks at: influence of features, explanations of single rows."""
