"""The one error that a user can cause."""


class InputError(ValueError):
    """Something that came from outside (file, network, configuration) is not as it must be.

    The message is one line: what is wrong, where (model, file, tensor, head), what was expected and found, and what to
    do about it. Scripts print it without a traceback.
    """
