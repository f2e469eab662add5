"""The one exception for data that is missing, truncated or not what it should be."""


class DataError(Exception):
    """Data is missing, truncated, empty or in another format; the message says where and what to do."""
