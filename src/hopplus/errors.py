"""What a user can get wrong."""


class InputError(ValueError):
    """A user's mistake, said in one sentence that tells what is wrong and what would be right; exit code 2 in a
    command."""
