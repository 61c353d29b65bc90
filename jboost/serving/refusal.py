"""The error that becomes an answer of HTTP: a status and one sentence for the client."""


class Refusal(Exception):  # noqa: N818  (the request is at fault, or the disk)
    """A request that is not carried out, and has changed nothing."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


def bad(sentence: str) -> Refusal:
    """Return the refusal of a request that can be read, but says something impossible."""
    return Refusal(422, sentence)
