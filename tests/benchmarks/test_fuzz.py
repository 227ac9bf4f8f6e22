"""``python -m benchmarks fuzz``: the same cases from the same seed, and a few hundred of them."""

import pytest
from benchmarks.fuzz.case import Case, WrongOutputError
from benchmarks.fuzz.oracle import judge
from benchmarks.fuzz.run import KINDS, describe, fuzz, summary


def judged(folder, *words, **how):
    folder.mkdir(exist_ok=True)
    return judge(0, "test", Case("a story", [str(word) for word in words], **how), folder).failures


def test_what_must_not_happen_is_noticed(tmp_path):
    folder = tmp_path / "case"
    assert judged(folder, "config", "check", "none.yaml", expected="refused", blamed=("none.yaml",)) == {}
    assert judged(folder, "config", "check", "none.yaml", expected="accepted").keys() == {"wrong refusal"}
    assert judged(folder, "config", "check", "none.yaml", blamed=("other",)).keys() == {"unclear error"}
    assert judged(folder, "config", "template", expected="refused").keys() == {"silent acceptance"}
    assert judged(folder, "config", "template", "-o", "a.yaml", written=("a.yaml",)) == {}
    assert judged(folder, "config", "template", "-o", "b.yaml").keys() == {"files left"}
    assert judged(folder, "config", "schema", "-o", "b.yaml").keys() == {"input changed"}

    def disappointed(folder):
        raise WrongOutputError("too short")

    assert judged(folder, "config", "template", check=disappointed) == {"wrong output": "too short"}


@pytest.mark.long
def test_nothing_breaks_it():
    found = fuzz(seed=2026, numbers=range(300))
    assert not any(result.failures for result in found), describe(found, 2026, 0.0)
    assert {result.kind for result in found} == set(KINDS)
    again = fuzz(seed=2026, numbers=[7])
    assert [(r.case.story, r.case.words, r.code) for r in again] == [
        (r.case.story, r.case.words, r.code) for r in found[7:8]
    ]
    assert summary(found, 2026)["cases"] == 300
