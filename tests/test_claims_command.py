"""`inferlab claims`: what it prints, and the status it ends with."""

import json

import pytest
from typer.testing import CliRunner

from inferlab import __main__ as cli
from inferlab import claims_command
from inferlab.lab.experiments import trials


def call(*words):
    return CliRunner().invoke(cli.app, ["claims", *words])


def test_a_claim_that_comes_out_is_status_0_with_its_count():
    done = call("worked-example", "--repeat", "3")
    assert done.exit_code == 0
    assert "worked-example: 3 of 3 as recorded (holds)" in done.stdout
    assert "measured 70.0 TFLOP" in done.stdout


def test_a_claim_that_does_not_is_status_1(monkeypatch):
    false = trials.Trial(lambda plant="": {"prefill": 1, "decode": 1, "total": 2}, ("macs",))
    monkeypatch.setattr(trials, "TRIALS", {**trials.TRIALS, "worked-example": false})
    done = call("worked-example")
    assert done.exit_code == 1
    assert "0 of 1 as recorded (holds)" in done.stdout
    assert "Not here" in done.stdout


def test_planted_falsehoods_are_caught_or_the_status_is_1(monkeypatch):
    done = call("worked-example", "serving-outweighs-training", "--plant")
    assert done.exit_code == 0
    assert "macs caught" in done.stdout
    assert "swapped caught, one-gpu" in done.stdout
    honest = trials.TRIALS["worked-example"].run
    deaf = trials.Trial(lambda plant="": honest(), ("macs",))
    monkeypatch.setattr(trials, "TRIALS", {**trials.TRIALS, "worked-example": deaf})
    done = call("worked-example", "--plant")
    assert done.exit_code == 1
    assert "macs NOT caught" in done.stdout


def test_json_has_every_run():
    done = call("worked-example", "training-is-paid-once", "--repeat", "2", "--json")
    content = json.loads(done.stdout)
    runs = content["claims"]["worked-example"]
    assert [run["verdict"] for run in runs] == ["holds", "holds"]
    assert content["no trial"] == ["training-is-paid-once"]


def test_what_has_no_trial_says_why(monkeypatch):
    fewer = {id: trial for id, trial in trials.TRIALS.items() if id != "steady-pace"}
    monkeypatch.setattr(trials, "TRIALS", fewer)
    done = call("training-is-paid-once", "steady-pace")
    assert done.exit_code == 0
    assert "training-is-paid-once: not testable: This is what the two words mean" in done.stdout
    assert "steady-pace: not tested yet" in done.stdout


def test_an_unknown_claim_is_one_sentence_with_near_names_and_status_2(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["inferlab", "claims", "byte-per-step"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("no claim 'byte-per-step' in data/claims.yml; near are bytes-per-step")
    assert said.count("\n") == 1


def test_good_is_the_opposite_for_a_plant():
    run = claims_command.good
    from inferlab.lab.experiments import repeats

    (honest,) = repeats.repeat("worked-example")
    (planted,) = repeats.plant("worked-example")
    assert run(honest)
    assert run(planted)
    assert not planted.as_foreseen
