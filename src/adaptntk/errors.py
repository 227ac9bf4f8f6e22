"""What can go wrong, told apart by who can mend it.

Every message is one line that says the cause and the way out. The command line prints it as it
is and exits with code 2; anything else that escapes is a defect of ours and keeps its traceback.
"""


class AdaptNTKError(Exception):
    """Base of all errors that a user can act on."""


class InputError(AdaptNTKError, ValueError):
    """A file, a structure or an option cannot be used as it is."""


def require(holds: bool, message: str) -> None:
    """Refuse an input that cannot be used."""
    if not holds:
        raise InputError(message)


class ModelError(AdaptNTKError):
    """A model file cannot be read, or holds something that is not a supported potential."""


class MismatchError(AdaptNTKError):
    """A ``.ntk`` file is used with a model it was not fitted for."""


class IndefiniteMatrixError(AdaptNTKError, ArithmeticError):
    """The regularised covariance lost positive definiteness: a numerical failure, not bad input."""
