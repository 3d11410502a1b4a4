"""The table of what errors of well-known libraries and services mean: by class, by code, by SQLSTATE, by status.

Libraries are recognised by name, so that none is ever imported.
"""

from __future__ import annotations

from typing import Final

from limpet.core.endings.verdict import Kind

# libraries → classes, for each kind. The first class along an error's bases that is listed decides.
_CLASSES: Final[dict[Kind, dict[str, str]]] = {
    "cancelled": {
        "asyncio concurrent": "CancelledError",
    },
    "timeout": {
        "builtins": "TimeoutError",
        "httpx httpx2 httpcore": "TimeoutException",
        "requests": "Timeout ConnectTimeout",
        "urllib3": "TimeoutError",
        "aiohttp": "ServerTimeoutError",
        "openai anthropic groq cerebras together": "APITimeoutError",
        "google": "RetryError",
        "botocore": "ConnectTimeoutError ReadTimeoutError",
        "azure": "ServiceRequestTimeoutError ServiceResponseTimeoutError",
        "elastic_transport opensearchpy": "ConnectionTimeout",
        "redis valkey": "TimeoutError",
        "sqlalchemy": "TimeoutError",
        "psycopg": "ConnectionTimeout",
        "psycopg_pool": "PoolTimeout",
        "pymongo": "NetworkTimeout ServerSelectionTimeoutError WaitQueueTimeoutError ExecutionTimeout WTimeoutError",
        "kafka aiokafka": "KafkaTimeoutError",
        "nats": "TimeoutError",
    },
    "spent": {
        "litellm": "BudgetExceededError",
    },
    "permanent": {
        "httpx httpx2": "InvalidURL UnsupportedProtocol LocalProtocolError TooManyRedirects StreamError",
        "httpcore": "UnsupportedProtocol LocalProtocolError",
        "requests": "InvalidURL InvalidSchema MissingSchema URLRequired InvalidHeader TooManyRedirects",
        "urllib3": "LocationValueError",
        "aiohttp": "InvalidURL TooManyRedirects",
        "openai": "LengthFinishReasonError ContentFilterFinishReasonError",
        "google": "DefaultCredentialsError MalformedError",
        "botocore": "NoCredentialsError PartialCredentialsError ParamValidationError NoRegionError UnknownServiceError "
        "ProfileNotFound",
        "redis valkey": "AuthenticationError AuthorizationError NoPermissionError DataError",
        "sqlalchemy": "ProgrammingError DataError NotSupportedError ArgumentError",
        "psycopg psycopg2 pymysql MySQLdb mysql oracledb pyodbc": "ProgrammingError DataError NotSupportedError",
        "sqlite3 pysqlite3": "ProgrammingError DataError NotSupportedError",
        "pymongo": "ConfigurationError InvalidName InvalidOperation DocumentTooLarge",
        "bson": "InvalidDocument",
        "kombu": "SerializationError SerializerNotInstalled",
        "pika": "ProbableAuthenticationError AuthenticationError",
        "smtplib aiosmtplib": "SMTPAuthenticationError SMTPNotSupportedError",
    },
    "transient": {
        "builtins": "ConnectionError",
        "httpx httpx2": "TransportError",
        "httpcore": "NetworkError RemoteProtocolError",
        "requests": "ConnectionError ChunkedEncodingError ContentDecodingError RetryError JSONDecodeError",
        "urllib3": "NewConnectionError MaxRetryError ProtocolError ProxyError SSLError DecodeError",
        "aiohttp": "ClientConnectionError ClientPayloadError",
        "openai anthropic groq cerebras together stripe": "APIConnectionError",
        "google": "TransportError",
        "botocore": "HTTPClientError",
        "azure": "ServiceRequestError ServiceResponseError",
        "elastic_transport opensearchpy": "ConnectionError",
        "redis valkey": "BusyLoadingError ReadOnlyError ConnectionError ClusterDownError MasterDownError TryAgainError "
        "OutOfMemoryError",
        "sqlalchemy": "OperationalError InterfaceError DisconnectionError",
        "psycopg psycopg2 pymysql MySQLdb mysql oracledb pyodbc": "OperationalError InterfaceError",
        "psycopg_pool": "PoolClosed TooManyRequests",
        "asyncpg": "InterfaceError PostgresConnectionError",
        "sqlite3 pysqlite3": "OperationalError",
        "pymongo": "ConnectionFailure",
        "kombu": "OperationalError LimitExceeded",
        "amqp": "RecoverableConnectionError RecoverableChannelError",
        "pika": "AMQPConnectionError",
        "smtplib aiosmtplib": "SMTPServerDisconnected SMTPConnectError",
    },
}

# Classes that are more exact than the status they come with: Stripe says 402 when a customer's card is declined.
BEFORE_STATUS: Final[dict[tuple[str, str], Kind]] = {("stripe", "CardError"): "permanent"}

# (first part of the module, class name) → kind.
BY_CLASS: Final[dict[tuple[str, str], Kind]] = {
    (library, name): kind
    for kind, groups in _CLASSES.items()
    for libraries, names in groups.items()
    for library in libraries.split()
    for name in names.split()
}

# What cannot be read or may not be done: like a mistake in the code, the next run would make it again. Like one, it is
# known only where it is raised itself: code that raises its own error from it has said what it means.
_UNFIT: Final[dict[str, str]] = {
    "builtins": "UnicodeDecodeError PermissionError",
    "json simplejson": "JSONDecodeError",
    "pydantic pydantic_core msgspec": "ValidationError",
    "django": "ValidationError PermissionDenied",
}
UNFIT: Final = tuple(
    (library, name) for libraries, names in _UNFIT.items() for library in libraries.split() for name in names.split()
)

# Whose answers may be broken today and whole tomorrow: what cannot be read there is tried again.
ANSWERING: Final = frozenset({"aiohttp", "http", "httpx", "httpx2", "niquests", "requests", "urllib", "urllib3"})

# Words for money or quota that waiting does not bring back, whatever status they come with.
SPENT: Final = frozenset(
    {
        "insufficient_quota",
        "organization_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "project_spend_limit_exceeded",
        "enforced_spend_limit_reached",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "credit_balance_exhausted",
        "credit_balance_too_low",
        "credits_exhausted",
        "insufficient_credits",
        "spend_limit_exceeded",
        "spend_limit_reached",
        "spending_limit_exceeded",
        "account_deactivated",
        "BILLING_DISABLED",
        "dailyLimitExceeded",
        "quotaExceeded",
        "ServiceQuotaExceededException",
    }
)

# Words for "slow down" that arrive with another status than 429 (AWS throttles with 400, Google with 403).
THROTTLED: Final = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "LimitExceededException",
        "TooManyRequestsException",
        "ProvisionedThroughputExceededException",
        "TransactionInProgressException",
        "BandwidthLimitExceeded",
        "PriorRequestNotComplete",
        "SlowDown",
        "rate_limit_exceeded",
        "rate_limit_error",
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "RATE_LIMIT_EXCEEDED",
    }
)

# Words for "try again" that arrive with a status which says the opposite (AWS: 400).
PASSING: Final = frozenset(
    {"RequestTimeout", "RequestTimeoutException", "IDPCommunicationError", "TransactionConflictException"}
)

# Whatever the status. In this order: a 429 that says "no money left" is about money.
WORDS: Final[tuple[tuple[frozenset[str], Kind], ...]] = (
    (SPENT, "spent"),
    (THROTTLED, "rate_limited"),
    (PASSING, "transient"),
)

# Words that count when no status comes with them (in streams, from gRPC, from SQLite), and the libraries that say them:
# an error of the user's own may have any code.
_CODES: Final[dict[Kind, str]] = {
    "transient": "overloaded_error api_error server_error UNAVAILABLE ABORTED INTERNAL UNKNOWN DATA_LOSS CANCELLED "
    "SQLITE_BUSY SQLITE_LOCKED",
    "timeout": "timeout_error DEADLINE_EXCEEDED",
    "rate_limited": "RESOURCE_EXHAUSTED",
    "permanent": "invalid_request_error authentication_error permission_error not_found_error request_too_large "
    "INVALID_ARGUMENT NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED FAILED_PRECONDITION OUT_OF_RANGE UNIMPLEMENTED "
    "UNAUTHENTICATED SQLITE_ERROR SQLITE_MISMATCH SQLITE_RANGE SQLITE_TOOBIG SQLITE_NOTADB SQLITE_AUTH "
    "SQLITE_CONSTRAINT_UNIQUE SQLITE_CONSTRAINT_PRIMARYKEY",
}
BY_CODE: Final[dict[str, Kind]] = {word: kind for kind, words in _CODES.items() for word in words.split()}
SPEAKERS: Final = frozenset(
    {"openai", "anthropic", "groq", "cerebras", "together", "litellm", "google", "grpc", "sqlite3", "pysqlite3"}
)

# SQLSTATE classes and codes. What is not listed is retried, such as a foreign key whose row is not committed yet.
SQL_TRANSIENT: Final = ("40", "08", "53", "57", "58", "55P03", "25006")
SQL_PERMANENT: Final = ("22", "23505", "42", "0A", "28", "3D", "3F", "54")

# HTTP statuses that do not mean what their hundred means.
BY_STATUS: Final[dict[int, Kind]] = {
    402: "spent",
    408: "transient",
    409: "transient",
    425: "transient",
    429: "rate_limited",
}


def class_name(library: str, name: str) -> str:
    """A class of these tables in words; builtins go without their module."""
    return name if library == "builtins" else f"{library}.{name}"


def kind_of_status(status: int) -> Kind:
    """What an HTTP status from 400 to 599 means; 529 (overloaded) is one of the server's."""
    return BY_STATUS.get(status) or ("transient" if status >= 500 else "permanent")


def kind_of_sqlstate(state: str) -> Kind | None:
    """What a database's SQLSTATE means, if it is known."""
    if state.startswith(SQL_TRANSIENT):
        return "transient"
    return "permanent" if state.startswith(SQL_PERMANENT) else None
