"""What goes wrong with files and objects, under the names that scripts catch.

Exception
├── MoxFileNameDuplicateException   a folder and a file of one name would have to exist side by side
├── MoxFileNotExistsException       there is nothing at the path (an OSError too, as open() would raise)
└── _MoxFileBaseRespException       the store said no; `resp` has status, errorCode and errorMessage
    ├── MoxFileReadException        an object's bytes stopped coming
    └── MoxFileRespException        any other answer of 300 or above
"""

__all__ = [
    "MoxFileNameDuplicateException",
    "MoxFileNotExistsException",
    "MoxFileReadException",
    "MoxFileRespException",
    "Response",
]


class Response:
    """What the store answered."""

    def __init__(self, status, code="", message=""):
        self.status = status
        self.reason = code
        self.errorCode = code
        self.errorMessage = message

    def __repr__(self):
        return f"{{'status': {self.status!r}, 'errorCode': {self.errorCode!r}, 'errorMessage': {self.errorMessage!r}}}"


class MoxFileNameDuplicateException(Exception):
    """A folder and a file of the same name clash."""


class MoxFileNotExistsException(FileNotFoundError):
    """There is no such file, object or folder."""


class _MoxFileBaseRespException(Exception):
    """The store refused; `resp` says why."""

    def __init__(self, resp, *args):
        super().__init__(resp, *args)
        self.resp = resp

    def __str__(self):
        return str(self.resp)


class MoxFileReadException(_MoxFileBaseRespException):
    """An object could not be read to its end."""


class MoxFileRespException(_MoxFileBaseRespException):
    """The store answered with an error."""
