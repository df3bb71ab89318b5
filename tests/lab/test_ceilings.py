"""Probes do the work they say they do; ceilings are made of it. Nothing here depends on a time."""

from contextlib import contextmanager

import pytest
import torch

from inferlab.engine import kernels
from inferlab.lab import ceilings, host, probes, rates
from inferlab.lab.ceilings import Calibration, calibrate, gemm_probe, gemm_rate, read_probe
from inferlab.lab.counters import flops
from inferlab.lab.probes import READS, Probe
from inferlab.theory import counts, roofline, shapes

SMALL = 2**20


@contextmanager
def _small():
    """Probes of a megabyte and products of 64, so that a calibration takes no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "last_level_cache", lambda: SMALL // 4)
        patch.setattr(probes, "_FLOOR", {"cpu": SMALL})
        patch.setattr(rates, "_SIZES", {"cpu": (32, 64)})
        patch.setattr(ceilings, "_SECONDS", {"read": 0.05, "product": 0.05})
        yield


@pytest.fixture(scope="module")
def calibrated():
    with _small():
        return calibrate("cpu", dtypes=("fp32", "bf16"))


@pytest.mark.parametrize("cache", [None, 2**15, 33554432, 2**30])
def test_the_working_set_is_at_least_four_caches_and_256_mib(monkeypatch, cache):
    monkeypatch.setattr(host, "last_level_cache", lambda: cache)
    size = probes.working_set("cpu")
    assert size >= max(2**28, 4 * (cache or 2**28))


@pytest.mark.parametrize("kind", READS)
def test_a_read_probe_reads_every_byte_it_counts(kind):
    probe = read_probe("cpu", kind, SMALL)
    assert probe.work == SMALL
    assert probe.unit == "B"
    half = (1 + torch.arange(2**14) / 2**14).bfloat16()
    halves = half.repeat(SMALL // 2**15)
    wide = halves.view(torch.float32).double()
    found = torch.as_tensor(probe()).double()
    if kind == "sum":
        expected = wide.sum()
    elif kind == "dot":
        left, right = wide.chunk(2)
        expected = (left * right).sum()
    else:
        packs = kernels.packs(torch.device("cpu"), torch.bfloat16)
        expected = (halves.double() if packs else wide).view(-1, 4096).sum(1)
        found = found.reshape(-1)
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, rtol=4e-3)


def test_no_value_a_probe_reads_is_zero_or_denormal():
    wide = (1 + torch.arange(2**14) / 2**14).bfloat16().view(torch.float32)
    assert wide.abs().min() > torch.finfo(torch.float32).tiny
    assert wide.isfinite().all()


def test_read_probes_refuse_in_words(monkeypatch):
    with pytest.raises(ValueError, match="sum, dot, gemv"):
        read_probe("cpu", "copy")
    monkeypatch.setattr(probes, "free_memory", lambda device: SMALL)
    with pytest.raises(MemoryError, match="needs twice that free"):
        read_probe("cpu", "sum", SMALL)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("kernel", ["plain", "native", "packed"])
def test_a_gemm_probe_does_the_flops_it_counts(dtype, kernel):
    m, n, k = 8, 48, 32
    if kernel not in kernels.candidates(torch.device("cpu"), probes.DTYPES[dtype])["linear"]:
        with pytest.raises(ValueError, match=f"no '{kernel}' product"):
            gemm_probe(dtype, m, n, k, kernel=kernel)
        return
    probe = gemm_probe(dtype, m, n, k, kernel=kernel)
    assert probe.work == flops(probe).total == 2 * m * n * k
    assert probe().shape == (m, n)
    assert probe().dtype == probes.DTYPES[dtype]


def test_gemm_probes_refuse_a_dtype_without_products():
    with pytest.raises(ValueError, match="fp32, bf16, fp16"):
        gemm_probe("int4", 8, 8, 8)


def _rates(clock, seconds=1.0, **probes_):
    made = {key: Probe(key, 100, "B", clock.work(*t)) for key, t in probes_.items()}
    tried = {"slow": 10.0, "fast": 100.0}
    return rates._sustained("rate", made, tried, seconds, "cpu", clock)


def test_the_faster_probe_is_the_ceiling_and_the_others_are_named(clock):
    m = _rates(clock, seconds=100.0, slow=(10.0,), fast=(1.0,))
    assert m.value == 100.0
    assert m.unit == "B/s"
    assert m.conditions["probe"] == "fast"
    assert m.conditions["tried"] == {"slow": 10.0, "fast": 100.0}


def test_a_neighbour_that_takes_the_core_now_and_then_does_not_lower_a_ceiling(clock):
    disturbed = (1.0, 9.0, 9.0, 1.0, 9.0) * 20
    m = _rates(clock, seconds=100.0, slow=(10.0,), fast=disturbed)
    assert m.conditions["best_of"] == 5
    assert m.minimum == m.value == 100.0


def test_long_calls_are_samples_of_their_own(clock):
    m = _rates(clock, seconds=1.0, slow=(10.0,), fast=(1.0,))
    assert m.conditions["best_of"] == 1
    assert m.n == 8


def test_a_gpu_is_given_work_for_five_milliseconds_before_it_is_waited_for(clock, monkeypatch):
    waits = []
    monkeypatch.setattr(rates.host, "provenance", lambda device: {})
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: waits.append(len(clock.calls)))
    probe = Probe("read", 10**6, "B", clock.work(0.001))
    m = rates._sustained("rate", {"read": probe}, {"read": 1e9}, 1.0, "cuda", clock)
    assert m.conditions["inner"] == 5
    assert m.value == pytest.approx(1e9)
    assert waits[-1] == len(clock.calls)
    assert {b - a for a, b in zip(waits[1:-1:2], waits[2::2], strict=False)} == {5}


def test_the_working_set_of_a_gpu_follows_its_cache_and_what_is_free(monkeypatch):
    class Properties:
        L2_cache_size = 50 * 2**20

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    for free, size in ((80e9, 2**31), (8e9, 1e9), (1e9, 200 * 2**20)):
        monkeypatch.setattr(probes, "free_memory", lambda device, free=free: int(free))
        assert probes.working_set("cuda") == size


def test_a_torch_device_will_do_for_a_name():
    probe = read_probe(torch.device("cpu"), "sum", SMALL)
    assert probe.conditions["device"] == "cpu"
    assert gemm_rate("fp32", n=32, device=torch.device("cpu"), seconds=0.01).value > 0


def test_read_bandwidth_restores_the_threads():
    before = torch.get_num_threads()
    with _small():
        m = ceilings.read_bandwidth(threads=1, seconds=0.01)
    assert m.provenance["threads"] == 1
    assert torch.get_num_threads() == before
    assert m.conditions["nbytes"] == SMALL
    assert set(m.conditions["tried"]) == set(READS)


def test_gemm_rate_of_one_size():
    one = gemm_rate("fp32", n=48, seconds=0.01)
    assert (one.conditions["m"], one.unit) == (48, "FLOP/s")
    assert one.value > 0


def test_sizes_that_would_take_too_long_are_left_out(clock, monkeypatch):
    monkeypatch.setattr(
        rates,
        "gemm_probe",
        lambda dtype, m, n, k, device, kernel: Probe(
            f"{kernel} {n}", 2 * n**3, "FLOP", clock.work(1e-3 * (n / 256) ** 3)
        ),
    )
    found = rates.gemm_rates("fp32", seconds=0.6, clock=clock)
    assert len(found) == 3  # 1 ms, 8 ms, 64 ms; 2,048 would take 0.5 s
    assert all(m.value == pytest.approx(2 * 256**3 / 1e-3) for m in found)


def test_a_calibration_is_measured_dated_named_and_saved(calibrated):
    made = calibrated
    assert made.bandwidth > 0
    assert made.fixed_time > 0
    assert made.layer_time != 0
    assert 1 <= made.threads <= torch.get_num_threads()  # fewer beside a busy neighbour
    for dtype in ("fp32", "bf16"):
        assert set(made.product_rates(dtype)) == {32, 64}
        assert made.peak_flops(dtype) == max(made.product_rates(dtype).values())
    assert made.source.startswith("measured ceilings of")
    assert made.date in made.source
    assert f"{made.threads} thread" in made.name
    assert Calibration.from_json(made.to_json()) == made
    with pytest.raises(ValueError, match="no matrix product rate of fp16 was measured"):
        made.peak_flops("fp16")


def test_a_calibration_is_a_machine_of_the_roofline(calibrated):
    made = calibrated
    shape = shapes.get("smollm2-135m")
    moved = counts.bytes_per_step(shape, weight_dtype="fp32", kv_dtype="fp32")
    expected = max(counts.flops_per_token(shape) / made.peak_flops("fp32"), moved / made.bandwidth)
    found = roofline.decode_time(shape, made, weight_dtype="fp32", kv_dtype="fp32")
    assert found == pytest.approx(expected)


def test_fixed_time_is_of_one_operation(clock, monkeypatch):
    class Cell:
        def add_(self, _):
            clock.now += 2e-6

    monkeypatch.setattr(torch, "zeros", lambda *_, **__: Cell())
    assert ceilings.fixed_time(clock=clock).value == pytest.approx(2e-6)


def test_a_layer_takes_what_ten_more_layers_take_by_tenths(clock, monkeypatch):
    """Passes of 12 and 2 layers: 1 ms for embedding and head, 0.3 ms a layer."""
    asked = []

    def model(shape, device, dtype):
        asked.append(shape.n_layers)
        return type("Model", (), {"layers": shape.n_layers, "dtype": torch.bfloat16})

    monkeypatch.setattr(rates, "random_model", model)
    monkeypatch.setattr(rates, "_pass", lambda m: clock.work(1e-3 + 3e-4 * m.layers))
    found = rates.layer_time(clock=clock)
    assert asked == [12, 2]
    assert found.samples == pytest.approx((3e-4,) * found.n)
    assert found.conditions["dtype"] == "bf16"


def test_a_pass_of_a_hollow_model_leaves_the_cache_as_it_was(tiny):
    from inferlab.engine import random_model
    from inferlab.lab.hollow import narrow

    shape = narrow(tiny, layers=2)
    assert (shape.n_layers, shape.n_heads, shape.n_kv_heads) == (2, tiny.n_heads, tiny.n_kv_heads)
    run = rates._pass(random_model(shape, "cpu", "fp32"))
    cache = run.__closure__[0].cell_contents
    run()
    run()
    assert cache.lengths == [65]


def test_calibration_takes_the_threads_that_run_undisturbed(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(ceilings.clock, "calm_threads", lambda fn: 1)  # and no look after that
    monkeypatch.setattr(ceilings.clock, "waited", lambda: float(torch.rand(()) * 1e9))
    try:
        with _small():
            made = calibrate("cpu", dtypes=("fp32",))
        assert {r.provenance["threads"] for r in made.records} == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_calibration_that_is_not_whole_is_refused(calibrated):
    content = calibrated.to_dict()
    with pytest.raises(ValueError, match="no saved calibration"):
        Calibration.from_dict({"records": []})
    with pytest.raises(ValueError, match="lacks fixed time of a layer"):
        Calibration.from_dict({**content, "records": content["records"][:-1]})


def test_the_ceiling_is_the_buffer_that_is_read_fastest(clock, monkeypatch):
    took = iter([1.2, 1.0, 1.1])

    def probe(device, kind, nbytes):
        seconds = next(took)
        return Probe(f"{kind} {seconds}", 100, "B", clock.work(seconds))

    monkeypatch.setattr(rates, "read_probe", probe)
    assert rates.read_ceiling("cpu", "dot", clock=clock).name == "dot 1.0"


class Tasks:
    """Three tasks, each noted with its threads; those listed in `bad` are disturbed."""

    def __init__(self, bad):
        self.bad, self.done, self.stood = set(bad), [], 0.0

    def all(self):
        return [lambda name=name: self.run(name) for name in "abc"]

    def run(self, name):
        self.done.append(f"{name}{torch.get_num_threads()}")
        if len(self.done) in self.bad:
            self.stood += 1e6
        return [self.done[-1]]


@pytest.mark.parametrize(
    ("bad", "kept", "done"),
    [
        ((), "a2 b2 c2", "a2 b2 c2"),
        ((2,), "a2 b2 c2", "a2 b2 b2 c2"),  # once: done again
        ((2, 3), "a1 b1 c1", "a2 b2 b2 a1 b1 c1"),  # twice: all of it, on one thread
        ((2, 3, 4, 5), "a1 b1 c1", "a2 b2 b2 a1 b1 c1"),  # one thread has its own clock
    ],
)
def test_ceilings_are_all_of_the_same_undisturbed_threads(monkeypatch, bad, kept, done):
    before, tasks = torch.get_num_threads(), Tasks(bad)
    torch.set_num_threads(2)
    monkeypatch.setattr(ceilings.clock, "calm_threads", lambda fn: torch.get_num_threads())
    monkeypatch.setattr(ceilings.clock, "waited", lambda: tasks.stood)
    try:
        assert ceilings._undisturbed(tasks.all(), lambda: None) == tuple(kept.split())
        assert tasks.done == done.split()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
