"""Errors as S3 and OBS clients know them: a code, a status, and a sentence."""

from __future__ import annotations

from trainshed.model.errors import TrainshedError

__all__ = ["S3Error", "translate_error"]

# The codes that we use and their statuses, from the public reference.
STATUSES = {
    "AccessDenied": 403,
    "AccessForbidden": 403,
    "AuthorizationHeaderMalformed": 400,
    "AuthorizationQueryParametersError": 400,
    "BadDigest": 400,
    "BadRequest": 400,
    "BucketAlreadyExists": 409,
    "BucketAlreadyOwnedByYou": 409,
    "BucketNotEmpty": 409,
    "EntityTooLarge": 400,
    "EntityTooSmall": 400,
    "IncompleteBody": 400,
    "IncorrectNumberOfFilesInPostRequest": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidBucketName": 400,
    "InvalidDigest": 400,
    "InvalidPart": 400,
    "InvalidPartNumber": 416,
    "InvalidPartOrder": 400,
    "InvalidPolicyDocument": 400,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "InvalidStorageClass": 400,
    "InvalidTag": 400,
    "InvalidURI": 400,
    "KeyTooLongError": 400,
    "MalformedACLError": 400,
    "MalformedPOSTRequest": 400,
    "MalformedPolicy": 400,
    "MalformedTrailerError": 400,
    "MalformedXML": 400,
    "MaxMessageLengthExceeded": 400,
    "MaxPostPreDataLengthExceededError": 400,
    "MetadataTooLarge": 400,
    "MethodNotAllowed": 405,
    "MissingContentLength": 411,
    "MissingSecurityHeader": 400,
    "NoSuchBucket": 404,
    "NoSuchBucketPolicy": 404,
    "NoSuchCORSConfiguration": 404,
    "NoSuchKey": 404,
    "NoSuchLifecycleConfiguration": 404,
    "NoSuchPublicAccessBlockConfiguration": 404,
    "NoSuchTagSet": 404,
    "NoSuchUpload": 404,
    "NoSuchVersion": 404,
    "NoSuchWebsiteConfiguration": 404,
    "NotImplemented": 501,
    "NotModified": 304,
    "ObjectLockConfigurationNotFoundError": 404,
    "ObjectNotAppendable": 409,
    "OperationAborted": 409,
    "OwnershipControlsNotFoundError": 404,
    "PositionNotEqualToLength": 409,
    "PreconditionFailed": 412,
    "QuotaExceeded": 403,
    "ReplicationConfigurationNotFoundError": 404,
    "RequestTimeTooSkewed": 403,
    "ServerSideEncryptionConfigurationNotFoundError": 404,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "SlowDown": 503,
    "XAmzContentSHA256Mismatch": 400,
}

# What the store and the services call these.
_OURS = {
    "no_such_bucket": "NoSuchBucket",
    "no_such_key": "NoSuchKey",
    "no_such_upload": "NoSuchUpload",
    "no_such_version": "NoSuchVersion",
    "not_implemented": "NotImplemented",
    "bucket_exists": "BucketAlreadyOwnedByYou",
    "bucket_name_taken": "BucketAlreadyExists",
    "bucket_not_empty": "BucketNotEmpty",
    "invalid_bucket_name": "InvalidBucketName",
    "checksum_mismatch": "BadDigest",
    "invalid_part": "InvalidPart",
    "invalid_part_order": "InvalidPartOrder",
    "entity_too_small": "EntityTooSmall",
    "part_changed": "InvalidPart",
    "incomplete_body": "IncompleteBody",
    "is_delete_marker": "MethodNotAllowed",
    "precondition_failed": "PreconditionFailed",
    "object_changed": "PreconditionFailed",
    "position_not_equal_to_length": "PositionNotEqualToLength",
    "object_not_appendable": "ObjectNotAppendable",
    "versioned_bucket": "OperationAborted",
    "invalid_range": "InvalidRange",
    "unknown_access_key": "InvalidAccessKeyId",
    "store_busy": "SlowDown",
    "disk_full": "ServiceUnavailable",
    "quota_exceeded": "QuotaExceeded",
    "bucket_quota_exceeded": "QuotaExceeded",
}
_BY_STATUS = {
    400: "InvalidArgument",
    401: "AccessDenied",
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "OperationAborted",
    413: "EntityTooLarge",
    416: "InvalidRange",
    503: "ServiceUnavailable",
}


class S3Error(TrainshedError):
    """An error that goes out as S3's XML."""

    def __init__(self, code: str, message: str, **details: str) -> None:
        super().__init__(message, code=code)
        self.status = STATUSES[code]
        # Further elements of the error document, such as the condition that failed.
        self.details = details


def translate_error(error: TrainshedError) -> S3Error:
    """The S3 error for one of ours."""
    if isinstance(error, S3Error):
        return error
    if error.code == "invalid_key":
        code = "KeyTooLongError" if len(error.where) >= 80 else "InvalidArgument"
    else:
        code = _OURS.get(error.code) or _BY_STATUS.get(error.status, "InternalError")
    return S3Error(code, str(error) if error.status < 500 else error.message)
