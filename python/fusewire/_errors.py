"""The exceptions of fusewire, with the names that they have in C++."""
import re


class Error(RuntimeError):
    """Base of all."""


class BadArgument(Error, ValueError):
    """An argument that cannot be accepted. Nothing was launched."""


class OutOfSpace(Error):
    """The memory that init() was asked for is too small."""


class RuntimeFailure(Error):
    """A call of CUDA or HIP failed."""


class RankMismatch(Error):
    """Ranks called with different arguments."""


class PeerFailed(RankMismatch):
    """Another rank failed, or did not come in time."""


class BootstrapFailed(Error):
    """Ranks did not find each other."""


class WaitTimeout(Error):
    """A wait inside a kernel lasted longer than wait_seconds; results since the last check are invalid."""


class LaunchUnfinished(Error):
    """A kernel ended before its last block had."""


class LaunchAbandoned(WaitTimeout):
    """Another rank gave up first, and its error says why."""


class NotBuilt(Error):
    """The operators are not there: no torch, no compiler at the installation, or no GPU."""


_OF_KIND = {"bad_argument": BadArgument, "out_of_space": OutOfSpace, "runtime_failure": RuntimeFailure,
            "rank_mismatch": RankMismatch, "peer_failed": PeerFailed, "bootstrap_failed": BootstrapFailed,
            "wait_timeout": WaitTimeout, "launch_unfinished": LaunchUnfinished, "launch_abandoned": LaunchAbandoned,
            "error": Error}


def from_text(text):
    """The exception that "fusewire::KIND: words" describes; None if the text does not begin so."""
    found = re.match(r"fusewire::(\w+): (.*)", text, re.DOTALL)
    return _OF_KIND.get(found.group(1), Error)(found.group(2)) if found else None
