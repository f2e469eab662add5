import pytest
import yaml

from lib.checks import ConfigError
from lib.config import RunConfig


def test_defaults_written_out_are_the_same_run_and_a_config_survives_yaml():
    assert RunConfig() == RunConfig(method_arguments={"temperature": 0.05})
    assert RunConfig(weight_decay=0) == RunConfig(weight_decay=0.0)
    config = RunConfig(method="micse", method_arguments={"queue_size": 3})
    copy = RunConfig(**yaml.safe_load(yaml.safe_dump(config.as_dict())))
    assert copy == config == RunConfig.from_parameters(config.as_dict()) and hash(copy) == hash(config)
    assert len({config, config.replace(queue_size=3), config.replace(queue_size=4)}) == 2


@pytest.mark.parametrize(
    "parameters, words",
    [
        ({"temprature": 0.1}, "did you mean 'temperature'"),
        ({"learning_rate": "1e-5"}, "learning_rate must be float, not '1e-5' .*write 1.0e-5"),
        ({"seed": True}, "seed must be int, not True\\.$"),
        ({"backbone": 7}, "backbone must be str, not 7 \\(put it in quotes\\)"),
        ({"method_arguments": {1: 2}}, "method_arguments must be .*, not {1: 2}"),
        ({"whole_words": 1, "method": "mlm"}, "whole_words must be bool, not 1\\.$"),
        ({"dropout": 1.0}, "dropout must be at least 0, at most 0.99"),
        ({"method": "simsce"}, "method 'simsce' is unknown"),
        ({"method_arguments": {"tau": 1.0}}, "unknown argument of simcse 'tau'"),
        ({"temperature": float("inf")}, "temperature must be above 0 and finite; got inf"),
        ({"dev_task": "mine.txt"}, "dev_task 'mine.txt' is unknown: choose one of demo, STS-B, none, a .csv"),
        ({"seed": -1}, "seed must be at least 0, at most 2,147,483,648; got -1"),
    ],
)
def test_what_is_wrong_is_one_sentence(parameters, words):
    with pytest.raises(ConfigError, match=words) as caught:
        RunConfig.from_parameters(parameters)
    assert "\n" not in str(caught.value)


def test_other_sizes_take_as_many_steps_or_whole_passes_and_still_have_four_dev_evaluations():
    config = RunConfig(corpus_size=1000, batch_size=64, epochs=2)
    assert config.few_shot(1000) is config is config.fewer(1000) is config.fewer(0)
    few = config.few_shot(100)
    assert (few.corpus_size, few.epochs, few.max_steps) == (100, 16, 32)  # 2 batches a pass, 32 steps as before
    assert config.few_shot(10_000).max_steps == 32
    assert (config.fewer(300).epochs, config.fewer(2000).epochs, config.fewer(300).max_steps) == (6, 2, 0)
    with pytest.raises(ConfigError, match="few_shot_sizes must be at least 1"):
        config.few_shot(0)
    config = RunConfig(corpus_size=1000, batch_size=10, eval_every=25)
    assert config.with_sentences(1000) is config and config.with_sentences(10_000).eval_every == 25
    few = config.with_sentences(80)
    assert (few.corpus_size, few.eval_every, config.with_sentences(10).eval_every) == (80, 2, 1)


def test_a_corpus_of_another_kind_and_dev_pairs_that_are_not_there_are_refused():
    assert RunConfig(corpus="demo-triples").whole_corpus("pairs", "triples").kind == "triples"
    with pytest.raises(ConfigError, match="the kind of corpus in demo-triples 'triples' is unknown"):
        RunConfig(corpus="demo-triples").whole_corpus("sentences")
    with pytest.raises(ConfigError, match="dev_task 'none' has no pairs"):
        RunConfig(dev_task="none").dev_pairs()
