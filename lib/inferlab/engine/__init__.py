"""What does happen: a real prefill and decode of a real model, in torch, with no clock in it."""

from inferlab.engine.generate import Step, decode, generate, prefill
from inferlab.engine.kvcache import KVCache, NoCache
from inferlab.engine.load import load, random_model
from inferlab.engine.model import Model, forward
from inferlab.engine.sampling import greedy, sample, sampler

__all__ = [
    "KVCache", "Model", "NoCache", "Step", "decode", "forward", "generate", "greedy", "load",
    "prefill", "random_model", "sample", "sampler",
]  # fmt: skip
