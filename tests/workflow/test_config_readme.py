"""The example study of config/README.md, exactly as it stands there."""

import re
import shlex

import pytest
from support.project import ROOT
from support.workflow_runs import planned, snakemake

README = (ROOT / "config" / "README.md").read_text(encoding="utf-8")


def example(language):
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return text


@pytest.mark.parametrize("number", [0, 1], ids=["plan", "study"])
def test_the_example_study_runs_dry(number, tmp_path):
    folder = tmp_path / "training"
    folder.mkdir()
    (folder / "models.tsv").write_text(example("tsv"))
    (folder / "study.yaml").write_text(example("yaml"))
    program, *arguments = shlex.split(example("sh").splitlines()[number])
    assert program == "snakemake"
    done = snakemake(ROOT, *arguments, "-n", "--directory", str(tmp_path), directory=tmp_path)
    if number == 0:
        assert planned(done) == {"plan"}
    else:
        assert "results/report/training/report.html" in done.stdout
        # 100 samples of the three null models in shards of 15.
        for model in ("early", "late"):
            assert len(set(re.findall(rf"output: results/nulls/{model}/\w+\.\d+-\d+\.h5", done.stdout))) == 21


def test_the_module_s_statement_is_the_tested_one():
    other = (ROOT / "tests" / "workflow" / "test_module_use.py").read_text(encoding="utf-8")

    def words(text):
        return re.sub(r"\s+", " ", text).strip()

    assert words(example("snakemake").replace("/path/to/headspaces", "{clone}")) in words(other)
