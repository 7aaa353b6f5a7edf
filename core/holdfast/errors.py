"""Every error Holdfast raises, sorted by what the caller does next.

::

    HoldfastError
    - InvalidRequest            fix the code or the configuration
      - IllegalState              this store was already committed or aborted
      - InvalidSetting            a key or value in the configuration
      - InvalidSchema             a schema, or a row that does not fit it
      - UnsupportedOperation      the backend did not declare this capability
      - ProviderNotFound          no installed backend has that name
      - DuplicateProvider         two installed packages claim one name
      - InvalidProvider           the class is not a usable provider
      - BrokenPlugin              an installed plug-in could not be loaded
      - VersionSkew               driver and executor run different software
      - EnvironmentNotReady       something outside Python is missing (Java)
      - FunctionFailed            the function given to an operator raised
    - Unavailable               try again
      - CommitFailed              the commit did not succeed; committing again is safe
    - Fenced                    drop the task: another attempt owns this version
    - CorruptState              stop and repair
      - MissingVersion            the version is not there, or not whole
      - IncompleteBatch           not every store committed: fix the sink, roll the query back

The types are API and stay; the wording of messages is not and may improve.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Base of all errors that Holdfast raises on purpose."""


class InvalidRequest(HoldfastError):
    """The call or the configuration is wrong; the same call will fail again."""


class IllegalState(InvalidRequest):
    """The store was already committed or aborted."""


class InvalidSetting(InvalidRequest):
    """A configuration key is unknown, or its value is not acceptable."""


class InvalidSchema(InvalidRequest):
    """A schema cannot be used, or a row does not fit its schema."""


class UnsupportedOperation(InvalidRequest):
    """The backend does not declare the capability that this call needs."""


class ProviderNotFound(InvalidRequest):
    """No installed plug-in and no importable class has the requested name."""


class DuplicateProvider(InvalidRequest):
    """Two installed distributions claim the same provider name."""


class InvalidProvider(InvalidRequest):
    """The named class exists but is not a usable provider."""


class BrokenPlugin(InvalidRequest):
    """An installed plug-in could not be loaded or misuses the hooks."""


class VersionSkew(InvalidRequest):
    """Driver and executor have different versions of Holdfast or of a plug-in."""


class EnvironmentNotReady(InvalidRequest):
    """Something that Holdfast needs outside Python is missing."""


class FunctionFailed(InvalidRequest):
    """The function that was given to an operator raised; its own error is the cause."""


class Unavailable(HoldfastError):
    """Storage or a peer did not answer; trying again may succeed."""


class CommitFailed(Unavailable):
    """The commit did not succeed. The version exists whole or not at all; committing again is safe."""


class Fenced(HoldfastError):
    """Another attempt owns this version; this one must not publish."""


class CorruptState(HoldfastError):
    """Stored state is damaged; reading on would give wrong results."""


class MissingVersion(CorruptState):
    """The requested version does not exist in full; it never reads as empty."""


class IncompleteBatch(CorruptState):
    """Spark finished a batch in which not every store committed; the message has the command that repairs it."""
