"""data/claims.yml: complete, consistent in itself, and true where a count decides."""

import re

import pytest
import yaml

from inferlab import data
from inferlab.lab import ledger, verdicts
from inferlab.lab.intervals import Interval
from inferlab.theory import counts, shapes
from inferlab.theory.counts import Sequence

CONTENTS = {
    "01_answer": "answer",
    "02_intuition": "next_token read_fast_write_slow why_not_in_parallel",
    "03_mechanics": "prefill decode kv_cache frozen_model",
    "04_math": "flops bytes roofline published_numbers",
    "05_code": "twenty_lines engine batching quantization speculative moe",
    "06_economics": "cost_of_a_request input_and_output serving lifetime price_and_margin",
    "07_sources": "claims mistakes_counting mistakes_measuring mistakes_pricing machines",
}
NOTEBOOKS = {f"{folder}/{name}" for folder, names in CONTENTS.items() for name in names.split()}
FORESEEN = {
    "refined": {2, 4, 5, 8, 10, 14, 29, 32},
    "depends": {7, 9, 12, 26, 27, 31},
    "wrong": {20},
    "not testable": {28},
}


@pytest.fixture(scope="module")
def book():
    return ledger.read()


def test_there_are_all_37_claims_with_distinct_names(book):
    assert [entry.number for entry in book.values()] == list(range(1, 38))
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", id) for id in book)


def test_every_claim_has_its_notebook_in_the_contents(book):
    assert {entry.notebook for entry in book.values()} <= NOTEBOOKS


def test_both_sources_are_read(book):
    assert {entry.file for entry in book.values()} == {"000", "001"}
    assert all(entry.section for entry in book.values())


def test_what_the_design_foresees(book):
    for verdict, numbers in FORESEEN.items():
        for entry in book.values():
            if entry.number in numbers:
                assert entry.foreseen == verdict, entry.id


def test_what_each_regime_expects_makes_the_verdict(book):
    for entry in book.values():
        assert entry.expected() == (entry.recorded or entry.foreseen), entry.id


def test_every_tolerance_and_bound_says_where_it_comes_from(book):
    for entry in book.values():
        for regime in entry.regimes:
            for party in regime.expect:
                claimed = entry.claimed(party, regime)
                if claimed.relation != "==":
                    assert claimed.why, f"{entry.id}, {regime.id}, {party}"


def test_statements_of_the_two_parties_can_be_told_apart(book):
    """A value inside both statements of a regime that expects only one would decide nothing."""
    for entry in book.values():
        for regime in entry.regimes:
            if len(set(regime.expect.values())) < 2:
                continue
            source, ours = (entry.claimed(party, regime) for party in ledger.PARTIES)
            if source.value is None or ours.value is None or ours.relation == "<":
                continue
            ours_here = Interval.exact(ours.value)
            assert source.at(source.value).outcome(ours_here) == verdicts.EXCLUDED, entry.id


def test_unknown_names_are_answered_with_near_ones(book):
    with pytest.raises(ValueError, match="near are .*bytes-per-step"):
        book["byte-per-step"]
    with pytest.raises(ValueError, match="no regime 'fp8'.*fp32, bf16, clock"):
        book["bytes-per-step"].regime("fp8")


def test_a_case_cannot_overrule_the_ledger(book):
    claimed = book["bytes-per-step"].source
    assert claimed.at(None).value == 2
    assert claimed.at(2).value == 2
    with pytest.raises(ValueError, match="the ledger states 2; the case brings 1"):
        claimed.at(1)


def _change(**fields):
    def change(entry):
        entry.update(fields)

    return change


def _drop(field):
    return lambda entry: entry.pop(field)


FAULTS = {
    "unknown field": (_change(colour="blue"), "unknown"),
    "missing field": (_drop("says"), "missing"),
    "unknown kind": (_change(kind="opinion"), "kind is one of"),
    "unknown file": (_change(file="002"), "file is one of"),
    "verdict typed": (_change(foreseen="true"), "foreseen is one of"),
    "undecided recorded": (_change(recorded="undecided"), "recorded is null or a verdict"),
    "no regimes": (_change(regimes=[]), "regimes, or a definition"),
    "no reason": (_change(kind="norm", regimes=[]), "says why"),
    "ours without words": (_drop("we_say"), "ours needs we_say"),
    "by a guess": (_change(by="guess"), "by is one of"),
    "needs a wish": (lambda entry: entry["regimes"][0].update(needs="luck"), "fp32: needs"),
    "band without width": (_change(source={"relation": "~", "value": 2}), "tolerance"),
    "no number": (_change(source={"relation": "=="}), "value or a formula"),
    "other verdict": (_change(recorded="holds"), "makes 'wrong', and 'holds' stands there"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_file_is_named_with_its_claim(tmp_path, fault):
    change, says = FAULTS[fault]
    content = yaml.safe_load(data.path("claims.yml").read_text(encoding="utf-8"))
    change(next(e for e in content["claims"] if e["id"] == "bytes-per-step"))
    file = tmp_path / "claims.yml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match=f"'bytes-per-step'.*{says}"):
        ledger.read(file)


@pytest.mark.parametrize(
    ("field", "says"), [("id", "the id"), ("number", "the number")], ids=["id", "number"]
)
def test_a_claim_that_stands_there_twice_is_found(tmp_path, field, says):
    content = yaml.safe_load(data.path("claims.yml").read_text(encoding="utf-8"))
    content["claims"][5][field] = content["claims"][6][field]
    file = tmp_path / "claims.yml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match=f"{says} .* stands there twice"):
        ledger.read(file)


# ------------------------------------- what a count decides, decided here from theory.counts


def _decode(shape, context):
    return counts.step(shape, [Sequence(1, context)]).matmul_flops


def _prefill(shape, prompt):
    return counts.step(shape, [Sequence(prompt, 0)]).matmul_flops


def _writing(shape, prompt, new):
    return sum(_decode(shape, c) for c in range(prompt, prompt + new - 1))


def _counted():
    small, large = shapes.get("smollm2-135m"), shapes.get("llama-2-7b")
    half = shapes.get("qwen2.5-0.5b")
    wide = shapes.get("llama-3-8b")
    two = {s.name: 2 * s.params for s in (small, large, wide)}
    n, big = two[small.name], two[large.name]
    kv = 8 * 8192 * wide.kv_bytes_per_token("bf16")
    return {
        ("cache-is-a-major-consumer", "llama-3-8b"): kv / (kv + 2 * wide.params),
        ("two-flops-per-parameter", "short-context"): _decode(small, 64) / n,
        ("two-flops-per-parameter", "long-context"): _decode(small, 1024) / n,
        ("two-flops-per-parameter", "separate-head"): _decode(wide, 64) / two[wide.name],
        ("prefill-flops", "large-model"): _prefill(large, 512) / big / 512,
        ("prefill-flops", "small-model"): _prefill(small, 256) / n / 256,
        ("prefill-flops", "long-prompt"): _prefill(large, 16384) / big / 16384,
        ("decode-flops", "short-context"): _writing(small, 16, 128) / n / 128,
        ("decode-flops", "short-answer"): _writing(small, 16, 8) / n / 8,
        ("decode-flops", "long-context"): _writing(small, 1024, 128) / n / 128,
        ("total-flops", "large-model"): (_prefill(large, 500) + _writing(large, 500, 500))
        / (big * 1000),
        ("total-flops", "small-model"): (_prefill(small, 1024) + _writing(small, 1024, 16))
        / (n * 1040),
        ("worked-example", "prefill"): counts.rule_of_thumb_flops(70e9, 500),
        ("worked-example", "total"): counts.rule_of_thumb_flops(70e9, 1000),
        ("equal-flops-unequal-time", "flops"): _writing(large, 500, 500) / _prefill(large, 500),
        ("equal-flops-unequal-time", "flops-small"): _writing(half, 500, 500) / _prefill(half, 500),
        ("bytes-per-step", "bf16"): counts.step(wide, [Sequence(1, 0)]).weight_bytes
        / (2 * wide.params),
        ("one-dense-product", "short-prompt"): _dense_share(large, 512),
        ("one-dense-product", "long-prompt"): _dense_share(large, 16384),
    }


def _dense_share(shape, prompt):
    step = counts.step(shape, [Sequence(prompt, 0)])
    dense = [op for op in step.ops if op.m == prompt and op.weight_bytes]
    return sum(2 * op.m * op.n * op.k * op.times for op in dense) / step.flops


@pytest.mark.parametrize("where", _counted(), ids=" ".join)
def test_what_the_ledger_expects_of_the_source_is_what_counting_gives(book, where):
    entry = book[where[0]]
    regime = entry.regime(where[1])
    claimed = entry.claimed("source", regime)
    found = claimed.at(claimed.value).outcome(Interval.exact(_counted()[where]))
    assert found == regime.expect["source"]


def test_the_products_of_a_pass_are_seven_a_layer_and_the_head():
    shape = shapes.get("llama-2-7b")
    for work in (Sequence(512, 0), Sequence(1, 512)):
        step = counts.step(shape, [work])
        products = sum(op.times for op in step.ops if op.m and op.weight_bytes)
        assert products == 7 * shape.n_layers + 1
