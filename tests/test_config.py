import pytest

from lib.config import ConfigError, RunConfig


def test_the_methods_arguments_are_filled_in_so_that_defaults_written_out_are_the_same_run():
    assert RunConfig() == RunConfig(method_arguments={"temperature": 0.05})
    assert RunConfig(weight_decay=0) == RunConfig(weight_decay=0.0)


def test_replace_and_flat_names():
    config = RunConfig().replace(temperature=0.1, seed=3)
    assert config.method_arguments["temperature"] == 0.1 and config.seed == 3
    assert RunConfig.from_parameters(config.as_dict()) == config
    assert RunConfig.from_parameters({"temperature": 0.1, "seed": 3}) == config


def test_frozen():
    with pytest.raises(AttributeError):
        RunConfig().seed = 1
    with pytest.raises(TypeError):
        RunConfig().method_arguments["temperature"] = 1


@pytest.mark.parametrize(
    "parameters, words",
    [
        ({"learning_rat": 1e-3}, "unknown parameter 'learning_rat': did you mean 'learning_rate'"),
        ({"temprature": 0.1}, "did you mean 'temperature'"),
        ({"learning_rate": "1e-5"}, "write 1.0e-5"),
        ({"seed": True}, "seed must be int"),
        ({"seed": 1.0}, "seed must be int"),
        ({"batch_size": 1}, "batch_size must be at least 2"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"dropout": 1.0}, "dropout must be at least 0, at most 0.99"),
        ({"pooling": "max"}, "pooling 'max' is unknown: choose one of cls"),
        ({"method": "simsce"}, "method 'simsce' is unknown"),
        ({"precision": "fp16"}, "precision 'fp16' is unknown"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"projection": "maybe"}, "projection 'maybe' is unknown"),
        ({"augmentation": "crop(2)"}, "augmentation 'crop\\(2\\)' is unknown"),
        ({"method_arguments": {"tau": 1.0}}, "unknown argument of simcse 'tau'"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
    ],
)
def test_what_is_wrong_is_one_sentence(parameters, words):
    with pytest.raises(ConfigError, match=words) as caught:
        RunConfig.from_parameters(parameters)
    assert "\n" not in str(caught.value)


def test_another_method_starts_from_its_own_defaults():
    config = RunConfig(method_arguments={"temperature": 0.1}).replace(method="micse", queue_size=0)
    assert config.method_arguments["queue_size"] == 0 and config.method_arguments["temperature"] == 0.05
    assert config.replace(method="micse").method_arguments["queue_size"] == 0
