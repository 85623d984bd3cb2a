"""The Hub source against a double of the Hub: few bytes, much patience, clear refusals."""

import importlib
import io
import json
import logging
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from support.checkpoints import LLAMA, llama_tensors, safetensors, shards
from support.hub_double import Answer, Content, HubDouble
from support.project import ROOT

from headspaces.errors import InputError
from headspaces.weights.blocks import read_block, read_metadata
from headspaces.weights.fetch import fetch_block
from headspaces.weights.formats.torch_archive import read_archive
from headspaces.weights.headers_file import load_headers, write_headers
from headspaces.weights.hub import transfer as remote
from headspaces.weights.hub.ranges import merged_ranges
from headspaces.weights.hub.repository import bytes_to_fetch, moved_revision
from headspaces.weights.hub.source import parse_hub
from headspaces.weights.source import read_headers

REPOSITORY = "someone/tiny-llama"
SOURCE = f"hub:{REPOSITORY}"
SECRET = "hf_" + "x" * 20


@pytest.fixture
def tensors(rng):
    return llama_tensors(rng)


def publish(double: HubDouble, files: dict[str, bytes], *revisions: str) -> str:
    contents = {name: Content.of(data, name.endswith((".safetensors", ".bin"))) for name, data in files.items()}
    contents["config.json"] = Content.of(json.dumps(LLAMA).encode(), large=False)
    return double.repository(REPOSITORY).commit(contents, *revisions)


def fetched(headers, tmp_path, layers=range(3)):
    fetch_block(headers, layers, tmp_path / "block.safetensors")
    return read_block(tmp_path / "block.safetensors")


def assert_values(block, tensors):
    for heads in block:
        start = f"model.layers.{heads.layer}."
        query = tensors[f"{start}self_attn.q_proj.weight"].astype(float)
        output = tensors[f"{start}self_attn.o_proj.weight"].astype(float)
        np.testing.assert_array_equal(heads.factors["Q"].transpose(0, 2, 1).reshape(32, 24), query)
        np.testing.assert_array_equal(heads.factors["O"].transpose(1, 0, 2).reshape(24, 32), output)
        np.testing.assert_array_equal(heads.read_norm.gain, tensors[f"{start}input_layernorm.weight"].astype(float))


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_model_in_any_number_of_files(double, tensors, tmp_path, number):
    commit = publish(double, shards(tensors, number) if number > 1 else {"model.safetensors": safetensors(tensors)})
    headers = read_headers(SOURCE)
    assert (headers.revision, headers.kinds, headers.shape.d_head) == (commit, "OQKV", 8)
    assert_values(fetched(headers, tmp_path), tensors)
    assert read_metadata(tmp_path / "block.safetensors")["revision"] == commit


def test_only_the_needed_bytes_are_served(double, tmp_path, rng):
    """A sharded model whose MLP is most of it: at most 1 % more than the tensors, and the headers."""
    tensors = llama_tensors(rng, "float64")
    tensors |= {name: np.zeros((3000, 24)) for name in tensors if "mlp" in name}
    files = shards(tensors, 3)
    publish(double, files)
    before = double.bodies
    headers = read_headers(SOURCE)
    parts = sum(8 + int.from_bytes(data[:8], "little") for name, data in files.items() if name.endswith(".safetensors"))
    text = len(files["model.safetensors.index.json"]) + len(json.dumps(LLAMA))
    listing = double.bodies - before - parts - text
    assert 0 < listing < 3000  # the list of files, and nothing else
    before = double.bodies
    fetched(headers, tmp_path)
    served, needed = double.bodies - before, headers.n_bytes()
    assert needed == 8 * 3 * (24 + 16 * 24 * 2 + 32 * 24 * 2)
    assert needed <= served <= 1.01 * needed
    assert served < 0.1 * sum(map(len, files.values()))


def test_files_beside_the_weights_are_said_and_cost_nothing(double, tensors, tmp_path):
    other = safetensors({name: array * 2 for name, array in tensors.items()})
    files = shards(tensors, 2) | {"model.safetensors": other, "adapter_model.safetensors": b"x" * 100}
    publish(double, files)
    headers = read_headers(SOURCE)
    stray, adapter, _ = headers.notes
    assert stray.startswith("model.safetensors lies beside the weights and is not read")
    assert adapter.startswith("the adapter adapter_model.safetensors lies beside the weights")
    assert set(headers.files) == {name for name in files if "-of-" in name}
    assert_values(fetched(headers, tmp_path), tensors)


def test_neighbouring_tensors_share_a_request(double, tensors, tmp_path):
    publish(double, {"model.safetensors": safetensors(tensors)})
    headers = read_headers(SOURCE)
    double.requests.clear()
    fetched(headers, tmp_path)
    ranges = [request for request in double.requests if "/storage/" in request[1]]
    # A layer's projections and the next layer's norm lie side by side, between them the MLP.
    assert len(ranges) == len(merged_ranges(headers, headers.layer_names(range(3)))) == 4
    planned = merged_ranges(headers, headers.layer_names([1]))
    assert sorted(name for *_, inside in planned for name in inside) == sorted(headers.layer_names([1]))
    assert bytes_to_fetch(headers) == sum(
        end - begin for _, begin, end, _ in merged_ranges(headers, headers.layer_names(range(3)))
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_fetch_cut_at_a_random_byte_resumes(double, tensors, tmp_path, seed):
    publish(double, shards(tensors, 2))
    headers = read_headers(SOURCE)
    random = np.random.default_rng(seed)
    for _ in range(4):
        double.fail(Answer(cut_after=int(random.integers(0, 7000))), 1, "/storage/")
    before = double.bodies
    assert_values(fetched(headers, tmp_path), tensors)
    assert double.bodies - before <= 1.01 * headers.n_bytes()  # nothing is fetched twice


def test_a_connection_that_always_breaks_is_given_up(double, tensors, tmp_path):
    publish(double, {"model.safetensors": safetensors(tensors)})
    headers = read_headers(SOURCE)
    double.fail(Answer(cut_after=0), 100, "/storage/")
    with pytest.raises(InputError, match=r"model.safetensors: .*attempts|cannot reach"):
        fetched(headers, tmp_path)
    assert not (tmp_path / "block.safetensors").exists()
    assert not list(tmp_path.glob("*.part"))


def test_a_connection_that_stands_still_is_left(double, tensors, tmp_path, monkeypatch):
    publish(double, {"model.safetensors": safetensors(tensors)})
    headers = read_headers(SOURCE)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    double.fail(Answer(stall=3.0), 1, "/storage/")
    start = time.monotonic()
    assert_values(fetched(headers, tmp_path), tensors)
    assert time.monotonic() - start < 2.5


def test_progress_is_shown_in_bytes(double, tensors, tmp_path, monkeypatch, caplog):
    bars = []

    class Bar:
        def __init__(self, total, unit, **_):
            self.total, self.unit, self.done = total, unit, 0
            bars.append(self)

        def update(self, number):
            self.done += number

        def close(self):
            self.closed = True

    publish(double, {"model.safetensors": safetensors(tensors)})
    headers = read_headers(SOURCE)
    monkeypatch.setattr(importlib.import_module("huggingface_hub.utils.tqdm"), "tqdm", Bar)
    double.fail(Answer(cut_after=1000), 2, "/storage/")
    with caplog.at_level(logging.INFO, "headspaces"):
        fetched(headers, tmp_path)
    (bar,) = bars
    assert (bar.unit, bar.closed, bar.done, bar.total) == ("B", True, bytes_to_fetch(headers), bytes_to_fetch(headers))
    assert "someone/tiny-llama: 0.0 MB in" in caplog.text


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("where", ["/api/models", "/resolve/", "/storage/"])
def test_a_busy_server_is_asked_again(double, tensors, tmp_path, status, where, caplog):
    publish(double, {"model.safetensors": safetensors(tensors)})
    double.fail(Answer(status=status, text="busy"), 3, where)
    with caplog.at_level(logging.WARNING, "headspaces"):
        headers = read_headers(SOURCE)
    double.fail(Answer(status=status, text="busy"), 2, "/storage/")
    assert_values(fetched(headers, tmp_path), tensors)
    assert f"status {status}" in caplog.text or str(status) in caplog.text


def test_the_wait_that_the_server_asks_for_is_kept(double, tensors, monkeypatch):
    waits = []
    monkeypatch.setattr(remote.time, "sleep", waits.append)
    publish(double, {"model.safetensors": safetensors(tensors)})
    double.fail(Answer(status=429, headers={"Retry-After": "2"}), 1, "/storage/")
    double.fail(Answer(status=429, headers={"Retry-After": "86400"}), 1, "/resolve/")
    read_headers(SOURCE)
    assert sorted(waits) == [2.0, remote.LONGEST_WAIT]


def test_a_server_that_ignores_ranges_is_left_at_once(double, tmp_path, rng):
    tensors = llama_tensors(rng) | {"lm_head.weight": np.zeros((4000, 2400), "float32")}
    publish(double, {"model.safetensors": safetensors(tensors)})
    headers = read_headers(SOURCE)
    double.fail(Answer(whole=True), 100, "/storage/")
    before = double.bodies
    with pytest.raises(
        InputError,
        match=r"ignores range requests \(status 200\).* GB\) .*hf download someone/tiny-llama model.safe",
    ):
        fetched(headers, tmp_path)
    assert double.bodies - before < 5e6 < headers.files["model.safetensors"].size  # what was on the way, not the file
    assert not (tmp_path / "block.safetensors").exists()


@pytest.mark.parametrize("answer", [Answer(short_by=1), Answer(shift=4)])
def test_a_wrong_slice_is_never_taken_for_the_right_one(double, tensors, tmp_path, answer):
    publish(double, {"model.safetensors": safetensors(tensors)})
    headers = read_headers(SOURCE)
    double.fail(answer, 1, "/storage/")
    assert_values(fetched(headers, tmp_path), tensors)
    double.fail(Answer(shift=4), 100, "/storage/")
    with pytest.raises(InputError, match=r"after 3 attempts \(the server sent the range"):
        fetch_block(headers, range(1), tmp_path / "other.safetensors")


def test_an_expired_address_is_renewed_and_a_refusal_is_quoted(double, tensors, tmp_path):
    publish(double, {"model.safetensors": safetensors(tensors)})
    headers = read_headers(SOURCE)
    double.fail(Answer(status=403, text="Request has expired"), 1, "/storage/")
    assert_values(fetched(headers, tmp_path), tensors)
    double.fail(Answer(status=403, text="Your country is not served"), 100, "/storage/")
    with pytest.raises(InputError, match="Your country is not served"):
        fetch_block(headers, range(1), tmp_path / "other.safetensors")


def test_a_file_that_changed_after_its_header_was_read_is_noticed(double, tensors, tmp_path, rng):
    commit = publish(double, {"model.safetensors": safetensors(tensors)})
    headers = read_headers(SOURCE)
    files = double.repository(REPOSITORY).commits[commit]
    files["model.safetensors"] = Content.of(safetensors(llama_tensors(rng)), large=True)  # same size, other content
    with pytest.raises(InputError, match="content is not the one whose header was read"):
        fetched(headers, tmp_path)
    files["model.safetensors"] = Content(b"", headers.files["model.safetensors"].size + 8, large=True)
    unmarked = replace(headers, files={name: replace(file, etag="") for name, file in headers.files.items()})
    with pytest.raises(InputError, match="bytes, .* when its header was read"):
        fetched(unmarked, tmp_path)
    assert not (tmp_path / "block.safetensors").exists()


def test_an_unpinned_revision_that_moves_is_noticed_and_the_old_commit_still_read(double, tensors, tmp_path, rng):
    first = publish(double, {"model.safetensors": safetensors(tensors)})
    headers, pinned = read_headers(SOURCE), read_headers(f"{SOURCE}@{first}")
    assert moved_revision(headers) is None
    second = publish(double, {"model.safetensors": safetensors(llama_tensors(rng))})
    assert (moved_revision(headers), moved_revision(pinned)) == (second, None)
    assert_values(fetched(headers, tmp_path), tensors)
    assert read_headers(SOURCE).revision == second
    assert any("not pinned" in note and first in note for note in headers.notes)
    assert not any("not pinned" in note for note in pinned.notes)


def test_revisions_are_branches_tags_commits_and_pull_requests(double, tensors):
    commit = publish(double, {"model.safetensors": safetensors(tensors)}, "refs/pr/1", "step1000")
    for revision in ("refs/pr/1", "step1000", commit):
        assert read_headers(f"{SOURCE}@{revision}").revision == commit
    with pytest.raises(InputError, match="no revision 'main'; .*commits lists them"):
        read_headers(SOURCE)


def test_what_the_hub_refuses_says_the_way_out(double, tensors, monkeypatch):
    with pytest.raises(InputError, match="hub:no/such: not found at .*; check the name, or set HF_TOKEN"):
        read_headers("hub:no/such")
    publish(double, {"model.safetensors": safetensors(tensors)})
    repository = double.repository(REPOSITORY)
    repository.gated, repository.token = True, SECRET
    with pytest.raises(InputError, match="gated; accept its licence at .*/someone/tiny-llama and set HF_TOKEN"):
        read_headers(SOURCE)
    with pytest.raises(InputError) as caught:
        read_headers(SOURCE)
    assert "JSON" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert read_headers(SOURCE).shape.n_layers == 3
    del repository.commits[repository.revisions["main"]]["model.safetensors"]
    files = repository.commits[repository.revisions["main"]]
    files["m-Q4_K_M.gguf"] = Content.of(b"GGUF", large=True)
    with pytest.raises(
        InputError, match=r"neither model.safetensors nor pytorch_model.bin .*there is m-Q4_K_M.gguf \("
    ):
        read_headers(SOURCE)
    del files["config.json"]
    with pytest.raises(InputError, match=r"no file 'config.json'; .* There is m-Q4_K_M.gguf \(GGUF: name the file"):
        read_headers(SOURCE)


def test_the_token_goes_to_the_hub_and_nowhere_else(double, tensors, tmp_path, monkeypatch, caplog):
    publish(double, {"model.safetensors": safetensors(tensors)})
    double.repository(REPOSITORY).token = SECRET
    monkeypatch.setenv("HF_TOKEN", SECRET)
    with caplog.at_level(logging.DEBUG):
        headers = read_headers(SOURCE)
        double.fail(Answer(status=503), 2, "/storage/")
        fetched(headers, tmp_path)
        write_headers(headers, tmp_path / "headers.json")
    sent = [(path, given.get("authorization")) for _, path, given in double.requests]
    assert {token for path, token in sent if "/storage/" not in path} == {f"Bearer {SECRET}"}
    assert {token for path, token in sent if "/storage/" in path} == {None}
    kept = (tmp_path / "headers.json").read_text() + str(read_metadata(tmp_path / "block.safetensors"))
    assert SECRET not in caplog.text + kept


def test_no_network_is_said_in_one_line(double, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(InputError, match="cannot reach http://127.0.0.1:.*check the network, a proxy") as caught:
            read_headers(SOURCE)
    assert "\n" not in str(caught.value)


@pytest.fixture
def untrusted(double, tmp_path):
    """The double behind a certificate that only its own file makes trusted; that file and the address."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate,
    ]  # fmt: skip
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    double.server.socket = context.wrap_socket(double.server.socket, server_side=True)
    return certificate, f"https://127.0.0.1:{double.port}"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_unknown_certificate_fails_at_once_and_its_file_makes_it_known(double, untrusted, tensors, tmp_path):
    certificate, url = untrusted
    publish(double, {})
    contents = double.repository(REPOSITORY).commits[double.repository(REPOSITORY).revisions["main"]]
    contents["model.safetensors"] = Content.of(safetensors(tensors), large=False)
    script = "import sys; from headspaces.weights.source import read_headers; print(read_headers(sys.argv[1]).shape)"
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("HF_", "PYTHON", "SSL_"))},
        "PYTHONPATH": str(ROOT / "src"), "HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "home"),
    }  # fmt: skip

    def run(**more):
        return subprocess.run(
            [sys.executable, "-c", script, SOURCE], env={**environment, **more}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    refused = run()
    assert "attempt 2" not in refused.stderr
    last = refused.stderr.strip().splitlines()[-1]
    assert f"the certificate of {url} is not trusted (self-signed certificate); where a" in last
    assert "set SSL_CERT_FILE to a file with its certificate" in last
    assert "n_layers=3" in run(SSL_CERT_FILE=str(certificate)).stdout


def fill_cache(folder: Path, files: dict[str, bytes], commit: str) -> None:
    model = folder / "models--someone--tiny-llama"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(commit + "\n")
    snapshot = model / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for name, data in files.items():
        (snapshot / name).write_bytes(data)


def test_offline_mode_reads_the_cache_and_nothing_else(double, tensors, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        InputError, match=r"offline mode is on and config.json is not in the cache .*cache; unset HF_HUB_OFF"
    ):
        read_headers(SOURCE)
    commit = "a" * 40
    files = shards(tensors, 2) | {"config.json": json.dumps(LLAMA).encode()}
    fill_cache(tmp_path / "cache", files, commit)
    headers = read_headers(SOURCE)
    assert headers.revision == commit
    assert_values(fetched(headers, tmp_path), tensors)
    assert not double.requests
    (
        tmp_path / "cache" / "models--someone--tiny-llama" / "snapshots" / commit / "model-00001-of-00002.safetensors"
    ).unlink()
    with pytest.raises(
        InputError,
        match=r"offline mode is on and model-00001-of-00002.safetensors is not in the cache .* \(only the attention's "
        rf"tensors are fetched\) .* `hf download someone/tiny-llama model-00001-of-00002.safetensors --revision "
        rf"{commit}` there \(\d\S* GB\)",
    ):
        fetch_block(headers, range(3), tmp_path / "other.safetensors")
    with pytest.raises(InputError, match=r"hf download someone/tiny-llama model-00001-of-00002.safetensors --rev"):
        read_headers(SOURCE)


def test_whole_files_in_the_cache_are_used(double, tensors, tmp_path):
    files = shards(tensors, 2)
    commit = publish(double, files)
    first = "model-00001-of-00002.safetensors"
    fill_cache(tmp_path / "cache", {first: files[first]}, commit)
    headers = read_headers(SOURCE)
    assert_values(fetched(headers, tmp_path), tensors)
    assert not [path for _, path, _ in double.requests if path.endswith(first)]
    assert [path for _, path, _ in double.requests if path.endswith("model-00002-of-00002.safetensors")]


def archive(state) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def torch_files(tensors, number: int, dtype=torch.float32) -> dict[str, bytes]:
    """The tensors as PyTorch archives, as transformers before safetensors published them."""
    state = {name: torch.nn.Parameter(torch.tensor(array).to(dtype)) for name, array in tensors.items()}
    if number == 1:
        return {"pytorch_model.bin": archive(state)}
    names = list(state)
    placed = {name: f"pytorch_model-{1 + i % number:05d}-of-{number:05d}.bin" for i, name in enumerate(names)}
    files = {file: archive({name: state[name] for name in names if placed[name] == file}) for file in placed.values()}
    return files | {"pytorch_model.bin.index.json": json.dumps({"weight_map": placed}).encode()}


@pytest.mark.parametrize("number", [1, 3])
def test_pytorch_archives_are_fetched_by_range_too(double, tmp_path, rng, number):
    tensors = llama_tensors(rng)
    tensors |= {name: np.zeros((20000, 24), "float32") for name in tensors if "mlp" in name}
    files = torch_files(tensors, number)
    publish(double, files)
    before = double.bodies
    headers = read_headers(SOURCE)
    assert double.bodies - before < 0.02 * sum(map(len, files.values()))
    before = double.bodies
    assert_values(fetched(headers, tmp_path), tensors)
    assert headers.n_bytes() <= double.bodies - before <= 1.01 * headers.n_bytes()


def test_what_torch_writes_is_where_it_is_looked_for(double, rng):
    """Types, shapes and places against torch's own reading: scalars, empty tensors, shared storages, slices of rows."""
    base = torch.randn(6, 4)
    state = {
        "a": torch.randn(3, 5).bfloat16(), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3), "whole": base,
        "rows": base[2:4], "half": torch.randn(7).half(), "long": torch.arange(5), "column": torch.randn(4, 1),
    }  # fmt: skip
    data = archive(state)
    found = read_archive(lambda begin, end: iter([data[begin:end]]), "x", len(data), "x")
    assert set(found) == set(state)
    for name, tensor in state.items():
        header = found[name]
        assert header.shape == tuple(tensor.shape)
        part = data[header.begin : header.end]
        expected = tensor.contiguous().flatten().view(torch.uint8) if tensor.numel() else torch.zeros(0)
        assert part == expected.numpy().astype("uint8").tobytes()


class Canary:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_code_in_a_pytorch_archive_is_not_run(double, tensors, tmp_path):
    state = {name: torch.tensor(array) for name, array in tensors.items()}
    publish(double, {"pytorch_model.bin": archive({**state, "canary": Canary(tmp_path / "sung")})})
    with pytest.raises(InputError, match="holds posix.mkdir beside tensors, which could run code"):
        read_headers(SOURCE)
    assert not (tmp_path / "sung").exists()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize(("content", "message"), [
    (lambda _: b"words" * 10, "no PyTorch archive"),
    (lambda state: archive(state)[:-100], "no PyTorch archive"),
    (lambda _: archive([1, 2]), "no tensors by name"),
    (lambda _: archive({"a": torch.zeros(3, 4).T}), "'a' is a view of another order"),
    (lambda _: archive({"a": torch.sparse_coo_tensor([[0]], [1.0], (3,))}), "beside tensors"),
])  # fmt: skip
def test_pytorch_archives_that_cannot_be_read(double, tensors, content, message):
    publish(double, {"pytorch_model.bin": content(tensors)})
    with pytest.raises(InputError, match=message) as caught:
        read_headers(SOURCE)
    assert "\n" not in str(caught.value)


def test_offline_mode_reads_archives_in_the_cache(double, tensors, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    fill_cache(tmp_path / "cache", torch_files(tensors, 2) | {"config.json": json.dumps(LLAMA).encode()}, "b" * 40)
    assert_values(fetched(read_headers(SOURCE), tmp_path), tensors)
    assert not double.requests


@pytest.mark.parametrize(("source", "parsed"), [
    ("hub:gpt2", ("gpt2", "main")), ("hub:a/b.c", ("a/b.c", "main")), ("hub:a/b@refs/pr/7", ("a/b", "refs/pr/7")),
])  # fmt: skip
def test_the_grammar_of_a_hub_source(source, parsed):
    found = parse_hub(source)
    assert (found.repository, found.revision) == parsed


@pytest.mark.parametrize("source", ["hub:", "hub:a/b/c", "hub:a/../b", "hub:a b", "hub:a/b@", "hub:../a"])
def test_other_hub_sources_are_refused(source):
    with pytest.raises(InputError, match="expected hub:owner/name or hub:owner/name@revision"):
        parse_hub(source)


@pytest.mark.parametrize(("damage", "message"), [
    ({"model.safetensors.index.json": b'{"weight_map": {"a": "../../secret"}}'}, "lies in '../../secret'"),
    ({"model.safetensors.index.json": b'{"weight_map": {"a": "absent.safetensors"}}'}, "names the file absent"),
    ({"model-00001-of-00002.safetensors": b"version https://git-lfs.github.com/spec/v1\n"}, "git-LFS pointer"),
    ({"model-00001-of-00002.safetensors": bytes(8)}, "empty header"),
])  # fmt: skip
def test_damaged_repositories(double, tensors, damage, message):
    publish(double, shards(tensors, 2) | damage)
    with pytest.raises(InputError, match=message):
        read_headers(SOURCE)


def test_headers_keep_no_address_of_the_server(double, tensors, tmp_path):
    publish(double, {"model.safetensors": safetensors(tensors)})
    headers = read_headers(SOURCE)
    write_headers(headers, tmp_path / "headers.json")
    assert load_headers(tmp_path / "headers.json") == headers
    assert "127.0.0.1" not in (tmp_path / "headers.json").read_text()


def test_the_unmodified_client_through_the_environment(double, tensors, tmp_path):
    """Another process that knows the double by HF_ENDPOINT alone."""
    publish(double, {"model.safetensors": safetensors(tensors)})
    double.repository(REPOSITORY).token = SECRET
    script = (
        "import sys; from headspaces.weights.source import read_headers; headers = read_headers(sys.argv[1]); "
        "from headspaces.weights.fetch import fetch_block; fetch_block(headers, range(3), sys.argv[2]); "
        "print(headers.revision)"
    )
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("HF_", "PYTHON"))},
        "PYTHONPATH": str(ROOT / "src"), "HF_ENDPOINT": double.url,
        "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": SECRET,
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-c", script, SOURCE, str(tmp_path / "block.safetensors")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == double.repository(REPOSITORY).revisions["main"]
    assert_values(read_block(tmp_path / "block.safetensors"), tensors)
