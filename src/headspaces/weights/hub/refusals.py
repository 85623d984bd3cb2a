"""Refusals of a Hub: what an answer or an error of its client means, in one line with the way out."""

from __future__ import annotations

import ssl
from typing import Any

from headspaces.errors import InputError


def raise_explained(response: Any, repository: str, revision: str, name: str) -> None:
    """Raise one line with the way out for an answer of the Hub that refuses.

    Raises
    ------
    InputError
        Always, unless the answer is no refusal.
    """
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

    try:
        hf_raise_for_status(response)
    except HfHubHTTPError as error:
        raise explained(error, repository, revision, name) from error


def explained(error: Exception, repository: str, revision: str, name: str = "", size: int | None = None) -> InputError:
    """Say in one line what an error of the Hub's client means and what to do; the name is a file's, or several."""
    from huggingface_hub import constants, errors

    page, where = f"{constants.ENDPOINT}/{repository}", f"hub:{repository}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return InputError(
            f"{where}: offline mode is on and {name or 'the model'} is not in the cache {constants.HF_HUB_CACHE}; "
            "unset HF_HUB_OFFLINE, or run this where there is a network (only the attention's tensors are fetched) and "
            f"copy results/weights, or run `hf download {repository} {name or 'config.json'} --revision {revision}` "
            f"there{gigabytes(size)} and copy the cache"
        )
    if isinstance(error, errors.GatedRepoError):
        return InputError(f"{where}: gated; accept its licence at {page} and set HF_TOKEN, or run `hf auth login`")
    if isinstance(error, errors.DisabledRepoError):
        return InputError(f"{where}: its owners or the Hub have disabled access to it; see {page}")
    if isinstance(error, errors.RepositoryNotFoundError):
        return InputError(
            f"{where}: not found at {constants.ENDPOINT}; check the name, or set HF_TOKEN if it is private"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return InputError(f"{where}: no revision {revision!r}; {page}/commits lists them")
    if isinstance(error, errors.EntryNotFoundError) or status == 404:
        return InputError(f"{where}@{revision}: no file {name!r}")
    text = server_text(getattr(error, "response", None))
    if status == 401:
        return InputError(f"{where}: the token is not accepted ({text}); set HF_TOKEN anew, or run `hf auth login`")
    return InputError(f"{where}: the server refuses {name or 'the request'} with status {status}: {text}")


def gigabytes(size: int | None) -> str:
    """Say a size in parentheses, where it is known."""
    return "" if size is None else f" ({size / 1e9:.3g} GB)"


def certificate_fault(error: BaseException | None) -> str:
    """Say what is wrong with a server's certificate where that is why an attempt failed; else nothing."""
    said = ""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return str(error.verify_message)
        # The client may have kept no more than the text.
        said = said or (reason(error) if "CERTIFICATE_VERIFY_FAILED" in str(error) else "")
        error = error.__cause__ or error.__context__
    return said


def not_trusted(fault: str, what: str) -> str:
    """Say that a certificate is not trusted, and what to do."""
    from huggingface_hub import constants

    return (
        f"{what}: the certificate of {constants.ENDPOINT} is not trusted ({fault}); where a proxy opens encrypted "
        "traffic, set SSL_CERT_FILE to a file with its certificate (PEM), else check HF_ENDPOINT and the clock"
    )


def reason(error: BaseException) -> str:
    """Return the first line of an error, or its kind."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def server_text(response: Any) -> str:
    """Return what a server wrote with an answer, on one line."""
    if response is None:
        return "no text"
    said = response.headers.get("X-Error-Message") or response.text
    return " ".join(str(said).split())[:200] or "no text"
