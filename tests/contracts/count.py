"""How many combinations of options the contracts try: ``python -m contracts.count`` in the folder ``tests``."""

from __future__ import annotations

from . import cli_options, kept_models, options, rate_options, selection_options
from .pairwise import all_pairs


def counts() -> dict[str, tuple[int, int, int]]:
    """For each contract the options, the combinations that must work, and those that must be refused."""
    rates = all_pairs(rate_options.OPTIONS)
    refused_rates = sum(bool(rate_options.refusal(one)) for one in rates)
    return {
        "options of learners": (
            sum(len(family.options) for family in options.FAMILIES.values()),
            sum(len(options.combinations(name)) for name in options.FAMILIES),
            sum(len(options.refusals(name)) for name in options.FAMILIES),
        ),
        "options of rate": (
            len(rate_options.OPTIONS),
            len(rates) - refused_rates + len(rate_options.accepted()),
            refused_rates,
        ),
        "options of commands": (
            sum(len(command.options) for command in cli_options.COMMANDS.values()),
            sum(len(cli_options.working(command)) for command in cli_options.COMMANDS.values()),
            sum(len(cli_options.refused(command)) for command in cli_options.COMMANDS.values()),
        ),
        "kept models": (len(kept_models.OPTIONS), len(kept_models.combinations()), 0),
        "functions": (
            sum(len(function.options) for function in selection_options.FUNCTIONS.values()),
            sum(len(selection_options.working(name)) for name in selection_options.FUNCTIONS),
            sum(len(selection_options.refused(name)) for name in selection_options.FUNCTIONS),
        ),
    }


def main() -> None:
    """Print a line for each contract."""
    print(f"{'contract':<20} {'options':>8} {'work':>6} {'refused':>8}")
    for name, (n_options, n_working, n_refused) in counts().items():
        print(f"{name:<20} {n_options:>8} {n_working:>6} {n_refused:>8}")


if __name__ == "__main__":
    main()
