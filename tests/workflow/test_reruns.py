"""An edit reruns exactly what depends on it: of every module, of the table of layouts, of what interprets bytes.

What depends on a module is derived here from the imports by a reading of its own.
"""

import ast
import queue
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import networkx as nx
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, quants
from support.hub_double import Content, serving
from support.project import ROOT
from support.workflow_runs import N_HEADS, N_KV, N_LAYERS, planned, save_tiny, snakemake

from headspaces.store import read_arrays, read_attributes

OWN = ("--config", "model=tiny", "nulls={samples: 2}")
# A part of the study that has jobs of many kinds; the slow test takes all of it.
TARGETS = ("results/report/tiny/tables/table4.csv", "results/affinity/tiny.h5", "results/self_heads/tiny.h5")
MODULES = sorted(
    path.relative_to(ROOT / "src" / "headspaces").as_posix() for path in (ROOT / "src" / "headspaces").rglob("*.py")
)
# Rows of these tables come to jobs by value; the package's own file holds the version and the library's names.
BY_VALUE = {"weights/layouts.py", "weights/refused.py", "__init__.py"}
RHO = "within/Q/rho"


def copy_of_the_project(folder):
    for name in ("workflow", "config", "src"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "Snakefile", folder)
    for name in ("profiles", "envs"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
    return folder


def study_in_a_copy(folder, *targets):
    copy_of_the_project(folder)
    save_tiny(folder / "tiny")
    snakemake(folder, *targets, *OWN)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A copy of the project in which a part of the study of a tiny model is finished."""
    return study_in_a_copy(tmp_path_factory.mktemp("finished"), *TARGETS)


@pytest.fixture(scope="module")
def graph(finished):
    """Which rule needs which, as Snakemake draws it."""
    return rule_graph(finished, *TARGETS)


def rule_graph(project, *targets):
    text = snakemake(project, *targets, "--rulegraph", *OWN).stdout
    names = dict(re.findall(r'(\d+)\[label = "([^"\\]+)', text))
    return nx.DiGraph([(names[one], names[other]) for one, other in re.findall(r"(\d+) -> (\d+)", text)])


def runtime_imports(path):
    """Modules that a file names in imports, without those for a type checker alone."""
    names = set()

    class Reader(ast.NodeVisitor):
        def visit_If(self, node):
            if "TYPE_CHECKING" not in ast.unparse(node.test):
                self.generic_visit(node)

        def visit_Import(self, node):
            names.update(alias.name for alias in node.names)

        def visit_ImportFrom(self, node):
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)

    Reader().visit(ast.parse(path.read_text()))
    return names


def import_graph():
    """From every module and script to what it runs when it is imported."""
    files = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in MODULES}
    graph = nx.DiGraph()
    for name in MODULES:
        graph.add_node(name)
    scripts = {f"script {path.stem}": path for path in (ROOT / "workflow" / "scripts").glob("*.py")}
    for source, path in [*((name, ROOT / "src" / "headspaces" / name) for name in MODULES), *scripts.items()]:
        for imported in runtime_imports(path):
            parts = imported.removeprefix("headspaces.").split(".") if imported.startswith("headspaces.") else []
            for length in range(1, len(parts) + 1):
                if (module := files.get(".".join(parts[:length]))) is not None:
                    graph.add_edge(source, module)
    graph.remove_nodes_from(BY_VALUE)
    return graph


def rules_with_code(graph):
    """By rule that depends on code, its script; of rules that are made in a loop the names differ in their ends."""
    found = {}
    for path in (ROOT / "workflow" / "rules").glob("*.smk"):
        for rule in re.split(r"^ *rule\b", path.read_text(), flags=re.MULTILINE)[1:]:
            script = re.search(r'scripts/(\w+)\.py"', rule)
            if script and re.search(r"^ +code=", rule, flags=re.MULTILINE):
                looped = re.search(r'name:\s+f"(\w+){', rule)
                name = looped[1] + r"\w+" if looped else rule.split(":")[0].strip()
                found |= {node: script[1] for node in graph if re.fullmatch(name, node)}
    return found


def expected_rules(module, graph):
    """Rules that an edit of a module must run again: those that import it, and all that need these."""
    imports = import_graph()
    own = {
        rule for rule, script in rules_with_code(graph).items()
        if module in imports and nx.has_path(imports, f"script {script}", module)
    }  # fmt: skip
    return (own | {after for rule in own for after in nx.descendants(graph, rule)}) - {"all"}


def rules_after_an_edit(project, module, *arguments):
    file = project / "src" / "headspaces" / module
    text = file.read_text()
    try:
        file.write_text(text + "\n# an edit\n")
        return planned(snakemake(project, "-n", *arguments))
    finally:
        file.write_text(text)


@pytest.mark.parametrize(
    "module", ["geometry/kernel.py", "nulls/draws.py", "weights/hub/repository.py", "weights/layouts.py"]
)
def test_an_edit_reruns_what_imports_it(module, finished, graph):
    assert rules_after_an_edit(finished, module, *TARGETS, *OWN) == expected_rules(module, graph)


def test_the_derivation_tells_modules_apart(graph):
    """So that the test above cannot pass with nothing, or everything, on both sides."""
    assert expected_rules("weights/hub/repository.py", graph) == set()
    assert expected_rules("weights/source.py", graph) == set()
    assert {"null_shard", "nulls", "tables_overlaps_nulls"} <= expected_rules("nulls/draws.py", graph)
    assert not {"bases", "overlaps", "null_shard"} & expected_rules("nulls/shards.py", graph) - {"null_shard"}
    assert {"bases", "overlaps", "null_shard", "affinity"} <= expected_rules("weights/cutting.py", graph)


@pytest.mark.campaign
def test_an_edit_of_any_module_reruns_what_imports_it(tmp_path):
    """In turn, in two copies of the whole study at a time."""
    copies = queue.SimpleQueue()

    def found(module):
        project = copies.get()
        try:
            return rules_after_an_edit(project, module, *OWN)
        finally:
            copies.put(project)

    with ThreadPoolExecutor(2) as pool:
        for project in pool.map(study_in_a_copy, [tmp_path / "one", tmp_path / "other"]):
            copies.put(project)
        graph = rule_graph(tmp_path / "one")
        wrong = {
            module: (rules, expected)
            for module, rules in zip(MODULES, pool.map(found, MODULES), strict=True)
            if rules != (expected := expected_rules(module, graph))
        }
    print(f"modules edited: {len(MODULES)} inputs, {len(wrong)} refused")
    assert not wrong


def test_a_new_row_of_the_layouts_reruns_nothing(finished):
    """Neither does another model type in the row that serves this model."""
    file = finished / "src/headspaces/weights/layouts.py"
    text = file.read_text()
    try:
        changed = text.replace("ROWS: tuple[Layout, ...] = (", 'ROWS: tuple[Layout, ...] = (Layout("new", ("new",)),')
        file.write_text(changed.replace('"llama", "mistral"', '"llama", "newest", "mistral"'))
        assert file.read_text().count("newest") == 1
        assert planned(snakemake(finished, *TARGETS, "-n", *OWN)) == set()
    finally:
        file.write_text(text)


def edited(project, module, old, new):
    file = project / "src" / "headspaces" / module
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def overlaps_of(project, name):
    path = project / f"results/overlaps/{name}.h5"
    return read_arrays(path, "overlaps"), read_attributes(path, "overlaps")


def fresh_run(project, source, target, folder):
    snakemake(project, target, "--directory", str(folder), "--config", f"model={source}")
    return read_arrays(folder / target, "overlaps")


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        # Another norm in the row, and heads cut in another order.
        ("weights/layouts.py", 'name="llama",\n', 'name="llama", norm="layernorm",\n'),
        (
            "weights/cutting.py",
            "    return matrix.reshape(shape.n_heads(kind), d_head, -1)",
            "    return matrix.reshape(d_head, shape.n_heads(kind), -1).transpose(1, 0, 2)",
        ),
    ],
    ids=["norm", "split"],
)
def test_a_mended_interpretation_gives_what_an_empty_folder_gives(tmp_path, module, old, new):
    """And no byte is fetched again: the model is on the Hub."""
    project = copy_of_the_project(tmp_path / "project")
    save_tiny(tmp_path / "tiny")
    target = "results/overlaps/model.h5"
    with serving() as double:
        double.repository("owner/model").commit({
            name: Content.of((tmp_path / "tiny" / name).read_bytes(), name != "config.json")
            for name in ("config.json", "model.safetensors")
        })  # fmt: skip
        environment = {"HF_ENDPOINT": double.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "cache")}
        command = (target, "--config", "model=hub:owner/model")
        snakemake(project, *command, **environment)
        before, served = overlaps_of(project, "model")[0], double.bodies
        edited(project, module, old, new)
        snakemake(project, *command, **environment)
        after = overlaps_of(project, "model")[0]
        # The repository is asked whether its branch has moved; its tensors have more than 20 kB.
        assert double.bodies - served < 1000
        assert served > 20_000
        snakemake(project, *command, "--directory", str(tmp_path / "empty"), **environment)
    fresh = read_arrays(tmp_path / "empty" / target, "overlaps")
    assert np.abs(after[RHO] - before[RHO]).max() > 1e-3
    for name, array in fresh.items():
        np.testing.assert_array_equal(after[name], array)


def save_gguf(path):
    rng = np.random.default_rng(3)
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(N_LAYERS)
    writer.add_embedding_length(32)
    writer.add_head_count(N_HEADS)
    writer.add_head_count_kv(N_KV)
    for layer in range(N_LAYERS):
        shapes = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
        for name, shape in shapes.items():
            packed = quants.quantize(rng.standard_normal(shape).astype(np.float32), GGMLQuantizationType.Q8_0)
            writer.add_tensor(f"blk.{layer}.{name}.weight", packed, raw_dtype=GGMLQuantizationType.Q8_0)
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", rng.uniform(0.5, 2, 32).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_mended_dequantiser_gives_what_an_empty_folder_gives(tmp_path):
    project = copy_of_the_project(tmp_path / "project")
    save_gguf(project / "packed.gguf")
    target = "results/overlaps/packed.h5"
    snakemake(project, target, "--config", "model=packed.gguf")
    before = overlaps_of(project, "packed")[0]
    edited(
        project, "weights/formats/dtypes.py", "dequantize(raw, number), np.float64)",
        "dequantize(raw, number), np.float64).__pow__(3)",
    )  # fmt: skip
    snakemake(project, target, "--config", "model=packed.gguf")
    after = overlaps_of(project, "packed")[0]
    fresh = fresh_run(project, project / "packed.gguf", target, tmp_path / "empty")
    assert np.abs(after[RHO] - before[RHO]).max() > 1e-3
    for name, array in fresh.items():
        np.testing.assert_array_equal(after[name], array)
