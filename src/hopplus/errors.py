"""What a user can get wrong, and what a user should know."""


class InputError(ValueError):
    """A user's mistake, said in one sentence that tells what is wrong and what would be right; exit code 2 in a
    command."""


class DamagedCheckpointWarning(UserWarning):
    """A checkpoint was passed over because its bytes are not what was written; one sentence on standard error in a
    command."""
