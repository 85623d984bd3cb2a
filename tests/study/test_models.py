from dataclasses import MISSING, fields

import pytest
from support.project import ROOT

from headspaces.errors import InputError
from headspaces.spaces import Shape
from headspaces.study.models import MODEL_NAME, Model, read_models, select_models
from headspaces.study.schemas import read_schema

HEADER = "name\tsource\tkinds\tn_layers\td_model\tn_query_heads\tn_kv_heads\td_head\tnulls_dtype\n"


def write(tmp_path, *rows):
    path = tmp_path / "models.tsv"
    path.write_text(HEADER + "".join("\t".join(row) + "\n" for row in rows))
    return path


GOOD = ("a", "hub:x/a", "OQKV", "3", "64", "4", "2", "16", "float32")


def test_a_row_becomes_a_model(tmp_path):
    model = read_models(write(tmp_path, GOOD))["a"]
    assert model == Model("a", "hub:x/a", "OQKV", Shape(3, 64, 4, 2, 16), nulls_dtype="float32")
    assert [model.shape.n_heads(kind) for kind in "OQKV"] == [4, 4, 2, 2]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (0, "a/b", "row 1: name is 'a/b', expected a name of letters"),
        (0, "", "no value for 'name'"),
        (1, "", "no value for 'source'"),
        (2, "QO", "kinds is 'QO', expected the letters OQKV only, each once, in order"),
        (3, "0", "n_layers is '0', expected a positive whole number below 10 million"),
        (3, "12345678", "n_layers is '12345678', expected a positive"),
        (3, "\u0663", "n_layers is .*, expected a positive"),
        (2, "OX", "row 1: kinds is 'OX', expected the letters OQKV only"),
        (3, "-3", "n_layers is '-3', expected a positive whole number"),
        (4, "6e2", "d_model is '6e2', expected a positive whole number"),
        (8, "float16", "nulls_dtype is 'float16', expected float64 or float32"),
    ],
)
def test_a_wrong_value_is_named(column, value, message, tmp_path):
    row = [value if i == column else old for i, old in enumerate(GOOD)]
    with pytest.raises(InputError, match=message):
        read_models(write(tmp_path, row))


def test_an_unknown_column_and_a_double_name(tmp_path):
    path = write(tmp_path, GOOD)
    path.write_text(path.read_text().replace("nulls_dtype", "null_dtype"))
    with pytest.raises(InputError, match="unknown column 'null_dtype'"):
        read_models(path)
    with pytest.raises(InputError, match="the model 'a' has two rows"):
        read_models(write(tmp_path, GOOD, GOOD))


def test_the_schema_has_the_columns_of_a_model():
    schema = read_schema(ROOT / "workflow" / "schemas" / "models.schema.yaml")
    columns = {
        field.name: field for field in [*fields(Model), *fields(Shape)] if field.name not in ("shape", "checkpoint")
    }
    assert set(schema["properties"]) == set(columns)
    assert set(schema["required"]) == {name for name, field in columns.items() if field.default is MISSING}
    assert schema["properties"]["name"]["pattern"] == f"^{MODEL_NAME}$"


def test_what_is_not_required_may_be_empty_or_missing(tmp_path):
    expected = Model("a", "hub:x/a", "OQKV", Shape(3, 64, 4, 2, 16))
    assert read_models(write(tmp_path, (*GOOD[:-1], ""))) == {"a": expected}
    assert read_models(write(tmp_path, GOOD[:-1])) == {"a": expected}
    with pytest.raises(InputError, match="row 1: unknown column 'beyond the last'"):
        read_models(write(tmp_path, (*GOOD, "more")))


def test_a_mistyped_column_is_named_before_the_missing_one(tmp_path):
    path = write(tmp_path, GOOD)
    path.write_text(path.read_text().replace("d_head", "dhead"))
    with pytest.raises(
        InputError, match="row 1: unknown column 'dhead'; the columns are name, source, kinds, n_layers"
    ):
        read_models(path)


@pytest.mark.parametrize(("n_layers", "kept", "procrustes"), [(15, 15, True), (16, 2, True), (32, 2, False)])
def test_large_models_are_read_again_and_spared_procrustes(n_layers, kept, procrustes):
    """8 x 1024 x 4 x 2048 bytes a layer: 64 MiB, so that 16 layers are the GiB and 32 the two."""
    model = Model("x", "x", "OQKV", Shape(n_layers, 1024, 32, 32, 64))
    assert (model.layers_kept, model.invariant_procrustes) == (kept, procrustes)


def test_unknown_models_are_listed(tmp_path):
    known = read_models(write(tmp_path, GOOD))
    with pytest.raises(InputError, match="config: unknown model 'b'; known are a"):
        select_models(known, ["a", "b"], "config")


def test_blocks_cover_the_layers_and_stay_small():
    model = Model("big", "hub:x/big", "O", Shape(94, 4096, 64, 4, 128))
    blocks = model.blocks
    assert [layer for block in blocks.values() for layer in block] == list(range(94))
    # 4096 x 8192 float64 a layer is 256 MiB: four layers in a GiB.
    assert next(iter(blocks)) == "layers000-003"
    assert len(blocks) == 24


def test_pairs_of_the_demo():
    model = Model("demo", "x", "OQKV", Shape(30, 576, 9, 3, 64))
    assert model.n_observed_pairs == 61_065
    # RW table 1: Qwen2.5-7B.
    qwen = Model("qwen", "x", "OQKV", Shape(28, 3584, 28, 4, 128))
    assert qwen.n_observed_pairs == 2 * 10_584 + 2 * 168 + 296_352 + 2 * 42_336


@pytest.mark.parametrize(("shape", "size"), [(Shape(30, 576, 9, 3, 64), 15), (Shape(28, 3584, 28, 4, 128), 1)])
def test_jobs_of_null_samples_take_minutes(shape, size):
    model = Model("x", "x", "OQKV", shape)
    assert model.samples_per_shard == size


def test_operations_of_a_null_sample_by_hand():
    model = Model("x", "x", "OK", Shape(2, 10, 3, 1, 4))
    pairs = 2 * 3 + 3 * 1
    expected = 100 * pairs + 100 * (12 + 4) * 2 + 2 * 10 * (12**2 + 4**2) * 2
    assert model.null_sample_operations == expected


def test_operations_of_a_sweep_by_hand():
    model = Model("x", "x", "OK", Shape(2, 10, 3, 1, 4))
    assert model.n_within_pairs == 2 * 3
    assert model.sweep_operations == 6 * (6 * 10 * 4**2 + 100 * 4**3)
    demo, large = (Model("x", "x", "OQKV", shape) for shape in (Shape(30, 576, 9, 3, 64), Shape(28, 3584, 28, 4, 128)))
    assert [demo.swap_samples_per_shard(sweeps) for sweeps in (1, 50)] == [15, 2]
    assert large.swap_samples_per_shard(1) == 1
