"""Input as an adversary: fuzzed headers, indexes, configurations and tables, and names that a shell would obey.

Whatever is read, there is a result or one line of :class:`InputError`; nothing outside the file is read, and memory
stays below twice the file. The numbers of inputs tried are printed at the end.
"""

import json
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.checkpoints import LLAMA, llama_tensors, safetensors, shards, with_header, write_folder
from support.hub_double import Answer, Content, serving
from support.project import ROOT
from support.workflow_runs import save_tiny, snakemake

from headspaces.errors import InputError
from headspaces.study.configuration import read_study
from headspaces.study.models import read_models
from headspaces.study.names import model_name
from headspaces.weights.folder import read_folder
from headspaces.weights.formats.gguf_header import read_gguf
from headspaces.weights.formats.safetensors_header import read_header
from headspaces.weights.source import read_headers

EXAMPLES = 200
SLACK = 2**20
"""Memory beside twice the file: Python objects of the smallest header."""
FUZZ = settings(
    max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
NUMBERS = st.sampled_from([0, 1, -1, 7, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 10**30]) | st.integers()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


class Trial:
    """Calls a reader on many inputs; counts them, and allows an answer or an InputError only."""

    def __init__(self, least=EXAMPLES * 0.6):
        self.tried = self.refused = 0
        self.least = least

    def __call__(self, read, size=None):
        tracemalloc.start()
        try:
            found = read()
        except InputError:
            self.refused += 1
            found = None
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        self.tried += 1
        if size is not None:
            assert peak <= 2 * size + SLACK, f"{peak} bytes for a file of {size}"
        return found

    def report(self, what):
        print(f"\n{what}: {self.tried} inputs, {self.refused} refused")
        assert self.tried >= self.least
        assert self.refused > 0


@st.composite
def mutated(draw, whole):
    """Change some bytes of a valid file: flips, cuts, insertions, numbers that lie."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        change = draw(st.sampled_from(["flip", "cut", "drop", "insert", "number", "copy"]))
        if change == "flip" and data:
            data[place] ^= draw(st.integers(1, 255))
        elif change == "cut":
            del data[place:]
        elif change == "drop":
            del data[place : place + draw(st.integers(1, 40))]
        elif change == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=12))
        elif change == "number":
            number = draw(NUMBERS) % 2**64
            data[place : place + 8] = number.to_bytes(8, "little")
        else:
            data[place:place] = data[place : place + draw(st.integers(1, 60))]
    return bytes(data)


SMALL = safetensors({"a": np.ones((2, 3), np.float32), "b.weight": np.ones(4, np.float16)}, {"format": "pt"})
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "F4", "I8", "x"]) | VALUES,
        "shape": st.lists(NUMBERS, max_size=4) | VALUES,
        "data_offsets": st.lists(NUMBERS, min_size=2, max_size=2) | st.lists(st.integers(0, 40), max_size=3) | VALUES,
        "more": VALUES,
    },
)
LYING = st.dictionaries(st.sampled_from(["a", "b", "__metadata__"]) | st.text(max_size=4), ENTRY | VALUES, max_size=4)


def check_inside(tensors, size):
    position = 0
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.begin, tensor.end)):
        assert 8 <= tensor.begin <= tensor.end <= size
        assert tensor.begin >= position
        position = tensor.end


def test_safetensors_headers(tmp_path):
    trial, path = Trial(2 * EXAMPLES * 0.6), tmp_path / "a.safetensors"

    def read(content):
        path.write_bytes(content)
        tensors = trial(lambda: read_header(path, path.name), len(content))
        check_inside(tensors or {}, len(content))

    @FUZZ
    @given(mutated(SMALL))
    def mutations(content):
        read(content)

    @FUZZ
    @given(LYING, st.integers(0, 40))
    def lies(header, n_bytes):
        read(with_header(json.dumps(header).encode(), bytes(n_bytes)))

    mutations()
    lies()
    trial.report("safetensors headers")


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000, b'{"a":' * 50_000, b"[{},{}," * 1_000_000, b'{"a":1,"a":' + b"1" * 5000 + b"}",
        b'{"a":{"dtype":"F32","shape":[' + b"4294967296," * 200_000 + b'1],"data_offsets":[0,0]}}',
        b'{"a":{"dtype":"F32","shape":[' + b"9," * 900_000 + b'0],"data_offsets":[0,0]}}', b"\xff" * 1000,
    ],
    ids=["deep", "deep_objects", "many", "long_number", "long_product", "long_shape", "no_text"],
)  # fmt: skip
def test_gigantic_json(header, tmp_path):
    """Headers made to exhaust the parser: refused in time, and in the memory of a few copies of their text."""
    path = tmp_path / "a.safetensors"
    path.write_bytes(with_header(header))
    tracemalloc.start()
    with pytest.raises(InputError):
        read_header(path, path.name)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * len(header) + 24 * 2**20


def text(value):
    return struct.pack("<Q", len(value)) + value


def small_gguf():
    """A file of three metadata values and two tensors."""
    values = [
        text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama"),
        text(b"llama.block_count") + struct.pack("<II", 4, 1),
        text(b"general.alignment") + struct.pack("<II", 4, 32),
        text(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + text(b"a") + text(b"b") + text(b"c"),
        text(b"deep") + struct.pack("<IIQIQ", 9, 9, 1, 4, 0),
    ]
    tensors = [
        text(b"blk.0.attn_q.weight") + struct.pack("<IQQIQ", 2, 4, 2, 0, 0),
        text(b"blk.0.attn_k.weight") + struct.pack("<IQQIQ", 2, 4, 2, 1, 32),
    ]
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + b"".join(values + tensors)
    return header + bytes(-len(header) % 32 + 32 + 32)


def test_gguf_headers(tmp_path):
    trial, path, whole = Trial(), tmp_path / "a.gguf", small_gguf()
    path.write_bytes(whole)
    assert set(read_gguf(path)[2]) == {"blk.0.attn_q.weight", "blk.0.attn_k.weight"}

    @FUZZ
    @given(mutated(whole))
    def mutations(content):
        path.write_bytes(content)
        found = trial(lambda: read_gguf(path), len(content))
        for tensor in found[2].values() if found else ():
            assert 0 <= tensor.begin <= tensor.end <= len(content)

    mutations()
    trial.report("GGUF headers")


@pytest.mark.parametrize(
    "value",
    [
        struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 5000,
        struct.pack("<IIQ", 9, 10, 2**63), struct.pack("<IIQ", 9, 8, 2**64 - 1), struct.pack("<IQ", 8, 2**64 - 1),
        struct.pack("<I", 8) + text(b"\xf0\x9f\x98\x80" * 500_000),
    ],
    ids=["deep", "long_array", "long_texts", "long_text", "wide_text"],
)  # fmt: skip
def test_gguf_values_that_lie(value, tmp_path):
    path = tmp_path / "a.gguf"
    content = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text(b"key") + value
    path.write_bytes(content)
    trial = Trial(1)
    assert trial(lambda: read_gguf(path), len(content)) is None
    assert trial.refused == 1


@pytest.mark.parametrize(
    "alignment", [b"\x06\0\0\0\0\0\x80\x7f", struct.pack("<Ii", 5, -8), struct.pack("<IIQ", 9, 4, 0)]
)
def test_gguf_alignments_that_are_none(alignment, tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text(b"general.alignment") + alignment)
    with pytest.raises(InputError, match="the alignment is"):
        read_gguf(path)


CONFIG_KEYS = [
    *LLAMA,
    "text_config",
    "quantization_config",
    "architectures",
    "is_encoder_decoder",
    "auto_map",
    "hidden_act",
]


def test_configurations(tmp_path):
    trial = Trial()
    folder = write_folder(
        tmp_path / "m", LLAMA, {"model.safetensors": safetensors(llama_tensors(np.random.default_rng(0)))}
    )

    @FUZZ
    @given(st.dictionaries(st.sampled_from(CONFIG_KEYS), VALUES, min_size=1, max_size=3))
    def changes(changed):
        (folder / "config.json").write_text(json.dumps(LLAMA | changed))
        trial(lambda: read_headers(str(folder)))

    @FUZZ
    @given(mutated(json.dumps(LLAMA).encode()))
    def mutations(content):
        (folder / "config.json").write_bytes(content)
        trial(lambda: read_headers(str(folder)))

    changes()
    mutations()
    trial.report("config.json")


PLACES = st.sampled_from(
    ["../m.safetensors", "/etc/passwd", "a\0b", "a" * 5000, "\ud800", "..", ".", "", "a/../../b", "C:x"]
)


def test_indexes(tmp_path):
    trial = Trial()
    files = shards(llama_tensors(np.random.default_rng(0)), 2)
    folder = write_folder(tmp_path / "m", LLAMA, files)
    (tmp_path / "m.safetensors").write_bytes(files["model-00001-of-00002.safetensors"])
    index = json.loads(files["model.safetensors.index.json"])
    names = st.sampled_from(sorted(index["weight_map"]))

    @FUZZ
    @given(st.dictionaries(names, PLACES | VALUES | st.text(max_size=20), min_size=1, max_size=3))
    def changes(changed):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index["weight_map"] | changed}))
        found = trial(lambda: read_folder(folder))
        assert found is None or all(Path(file.location).parent == folder for file in found[3].values())

    @FUZZ
    @given(mutated(files["model.safetensors.index.json"]))
    def mutations(content):
        (folder / "model.safetensors.index.json").write_bytes(content)
        trial(lambda: read_folder(folder))

    changes()
    mutations()
    trial.report("indexes")


def test_tables_of_models(tmp_path):
    trial, path = Trial(), tmp_path / "models.tsv"
    whole = (ROOT / "config" / "models.tsv").read_bytes()

    @FUZZ
    @given(mutated(whole))
    def mutations(content):
        path.write_bytes(content)
        for model in (trial(lambda: read_models(path)) or {}).values():
            assert "/" not in model.name
            assert len(model.blocks) <= model.shape.n_layers

    mutations()
    trial.report("tables of models")


def test_studies():
    trial = Trial()
    defaults = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    keys = st.sampled_from([*defaults, "model"]) | st.text(max_size=5) | st.integers()

    @FUZZ
    @given(st.dictionaries(keys, VALUES, max_size=2), st.dictionaries(st.sampled_from([*defaults]), VALUES, max_size=2))
    def changes(in_file, on_command_line):
        trial(lambda: read_study(defaults | in_file, ROOT, on_command_line))

    changes()
    trial.report("studies")


@settings(FUZZ, max_examples=1000)
@given(st.text(max_size=40) | st.text(alphabet="ab/.@: '\"$()`;\n\\~-", max_size=40))
def test_any_source_gives_one_path_component(source):
    try:
        name = model_name(source)
    except InputError:
        return
    assert name
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert not name.startswith((".", "-"))
    assert len(name) <= 100


NAMES = ["a b'\"$(touch pwned)", "`touch pwned`; touch pwned", "模型", "-rf a%sb*?[x]"]


@pytest.mark.parametrize("name", NAMES)
def test_names_reach_no_shell_and_are_one_component(name, tmp_path):
    """Through the command line and a whole run as far as the overlaps."""
    save_tiny(tmp_path / "models" / name)
    source = str(tmp_path / "models" / name)
    made = model_name(source)
    run = tmp_path / "run"
    done = snakemake(
        ROOT, f"results/overlaps/{made}.h5", "--directory", str(run), "--config", f"model={source}", check=False
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert [path.name for path in (run / "results/overlaps").iterdir()] == [f"{made}.h5"]
    assert not list(tmp_path.rglob("pwned"))
    assert not (ROOT / "pwned").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{wildcards.model}", "Snakemake takes braces in paths for its own"),
        ("a\nb", "does not exist"),  # Snakemake reads the line break as a space
        ("~no-such-user/x", "no folder or file can have this name"),
        ("a" * 300, "no such file or folder, and no row of the models table"),
        ("''", "model is None, but must be of type string"),
    ],
)
def test_names_that_cannot_be_used_are_said(name, message, tmp_path):
    if "{" in name:
        name = save_tiny(tmp_path / name)
    done = snakemake(ROOT, "all", "-n", "--directory", str(tmp_path), "--config", f"model={name}", check=False)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert message in output
    assert "Traceback" not in output


@pytest.mark.parametrize("name", ["a b", "a/b", "../a", "$(touch pwned)", "a;b", "", "ä"])
def test_names_in_the_table_are_plain(name, tmp_path):
    table = (
        "name\tsource\tkinds\tn_layers\td_model\tn_query_heads\tn_kv_heads\td_head\n"
        f"{name}\t{tmp_path}\tOQKV\t3\t24\t4\t2\t6\n"
    )
    (tmp_path / "models.tsv").write_text(table)
    done = snakemake(
        ROOT, "-n", "--directory", str(tmp_path), "--config", f"models_table={tmp_path / 'models.tsv'}",
        f"models=[{json.dumps(name)}]", check=False,
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "row 1: name is" in output or "no value for 'name'" in output
    assert "Traceback" not in output


CANARY = "hf_canaryCANARYcanaryCANARYcanary1234"


@pytest.mark.parametrize("fault", [None, Answer(status=403, text="no")])
def test_the_token_is_in_no_file(fault, tmp_path, rng):
    """A private repository through the workflow: the token opens it, and nothing that is written holds it."""
    with serving() as double:
        repository = double.repository("owner/private")
        repository.token = CANARY
        files = {
            "config.json": Content.of(json.dumps(LLAMA).encode(), False),
            "model.safetensors": Content.of(safetensors(llama_tensors(rng)), True),
        }
        repository.commit(files)
        if fault:
            double.fail(fault, 1000, "/storage/")
        environment = {
            "HF_ENDPOINT": double.url, "HF_TOKEN": CANARY, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "cache"),
        }  # fmt: skip
        done = snakemake(
            ROOT, "results/overlaps/private.h5", "--directory", str(tmp_path / "run"), "--verbose",
            "--config", "model=hub:owner/private", check=False, **environment,
        )  # fmt: skip
        output = done.stdout + done.stderr
        assert (done.returncode == 0) == (fault is None), output
        asked = [
            {key.lower(): value for key, value in headers.items()}.get("authorization")
            for _, _, headers in double.requests
        ]
    assert f"Bearer {CANARY}" in asked
    assert CANARY not in output
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(written) >= 2
    assert [path for path in written if CANARY.encode() in path.read_bytes()] == []


def test_reading_needs_no_shell():
    """Programs are started from lists of arguments, and rules run scripts."""
    rules = "".join(path.read_text() for path in [ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk")])
    code = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert "shell:" not in rules
    assert "shell=True" not in code
    assert "os.system" not in code
    assert "trust_remote_code=True" not in code
    assert "script:" in rules
