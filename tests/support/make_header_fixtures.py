"""Write the headers of the paper study's models, read from the Hub double.

``make_header_fixtures.py [FOLDER [MODEL …]]``; without arguments all models, into ``fixtures/headers``.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent / "src")]

if __name__ == "__main__":
    from support.hub_double import serving
    from support.paper_models import repository_files

    with serving() as double:
        os.environ |= {"HF_ENDPOINT": double.url, "HF_HUB_OFFLINE": "0", "HF_HUB_CACHE": "/nonexistent"}
        from headspaces.study.models import read_models
        from headspaces.weights.headers_file import write_headers
        from headspaces.weights.source import read_headers

        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else TESTS / "fixtures" / "headers"
        for name, model in read_models(TESTS.parent / "config" / "models.tsv").items():
            if model.source.startswith("hub:") and name in (sys.argv[2:] or name):
                repository = model.source.removeprefix("hub:")
                double.repository(repository).commit(repository_files(repository))
                headers = read_headers(model.source, model.kinds)
                # The commits are made up, so nothing is said about pinning them.
                write_headers(replace(headers, notes=()), folder / f"{name}.json")
