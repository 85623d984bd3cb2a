"""The revisions of a repository on the Hub."""

from __future__ import annotations

from headspaces.errors import InputError
from headspaces.weights.hub.refusals import explained
from headspaces.weights.hub.source import parse_hub
from headspaces.weights.hub.transfer import patiently


def list_revisions(source: str) -> list[str]:
    """List the names of a repository's branches and tags.

    Raises
    ------
    InputError
        If the repository is missing or gated, or the Hub cannot be asked.
    """
    from huggingface_hub import HfApi, constants, is_offline_mode
    from huggingface_hub.errors import HfHubHTTPError

    wanted = parse_hub(source)
    if is_offline_mode():
        raise InputError(f"{source}: offline, the Hub cannot be asked for revisions; list them in braces: @step{{0,1}}")
    api = HfApi(endpoint=constants.ENDPOINT, library_name="headspaces")
    try:
        refs = patiently(lambda: api.list_repo_refs(wanted.repository), f"hub:{wanted.repository}")
    except HfHubHTTPError as error:
        raise explained(error, wanted.repository, wanted.revision) from error
    return [ref.name for ref in (*refs.branches, *refs.tags)]
