"""The learners: thin classes that validate, build, solve and set attributes."""
