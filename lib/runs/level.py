"""The level field: every method under one protocol, each with as many trials, and what it gains over SimCSE and its controls.

`params/level/methods.yaml` says what each method is and which trials are its own; a file beside it names encoder and data.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pandas as pd

from lib import results
from lib.checks import check_choice, check_seeds
from lib.config import RunConfig
from lib.data import load_corpus
from lib.encoders.whitening import Whitened
from lib.runs import costs
from lib.runs.costs import AGAIN, TABLE, read
from lib.runs.measure import with_encoders
from lib.runs.plan import Plan
from lib.runs.trials import Best, Trial

OTHER_SEED = 1000  # how far that seed is from the first one
LONGER = {2: "SimCSE, 2 epochs", 4: "SimCSE, 4 epochs"}  # work, in SimCSE's -> SimCSE with as much


class Field:
    """The runs of the level field in a plan. Of every method: trials, on `trial_size` sentences with each of `trial_seeds`
    (their sentences too); the setting with the highest mean dev score; and its final runs, on the sentences of each of `seeds`.

    Args:
        table: what `read` gives.
        config: the protocol: data, length, batch, evaluation. trial_size 0 takes all sentences of it.
        methods: names in the table; [] takes all.
        own: whether the trials of each method's own knob are made.

    Raises:
        ConfigError: an unknown method, a wrong value, or a seed that is in both lists.
    """

    def __init__(
        self, plan: Plan, table: Mapping[str, Mapping[str, Any]], config: RunConfig, *, methods: Sequence[str],
        rates: Sequence[float], temperatures: Sequence[float], trial_size: int, trial_seeds: Sequence[int],
        seeds: Sequence[int], own: bool = True,
    ) -> None:  # fmt: skip
        check_seeds(seeds, trial_seeds, "trial_seeds")
        for name in methods:
            check_choice("a method of the level field", name, table)
        self.plan, self.table, self.own = plan, table, own
        self.final, self.small = config, config.replace(corpus_size=trial_size or config.corpus_size)
        self.seeds, self.trial_seeds = list(seeds), list(trial_seeds)
        pairs = itertools.product(rates, temperatures)
        self.common = [{"learning_rate": rate, "temperature": temperature} for rate, temperature in pairs]
        self.methods = list(methods or table)
        self.trials, self.chosen = cache(self.trials), cache(self.chosen)
        for name in self.methods:
            for part in table[name].get("sum", [name]):
                for seed in self.seeds:
                    self.chosen(part, seed, final=True)

    def trials(self, name: str) -> dict[tuple[str, int], Trial]:
        """The trials of a method, declared when they are first asked for."""
        entry, common = self.table[name], self.table[name].get("common", self.common)
        start = {
            one: ({(before, seed): self.chosen(before, seed) for seed in self.trial_seeds}, before)
            for one, before in entry.get("after", {}).items()
        }

        def add(changes: Sequence[Mapping[str, Any]], after: Mapping[str, Any]) -> dict[tuple[str, int], Trial]:
            tried = {_label(change): entry["change"] | change for change in changes}
            return self.plan.add(f"{name}: trials", self.small, tried, self.trial_seeds, after, method=name)

        trials = add(common, start)
        return trials | add(entry["own"] if self.own else [], {one: Best(one, trials) for one in common[0]} | start)

    def chosen(self, name: str, seed: int, *, final: bool = False) -> Trial:
        """The run of a method with the setting that its trials chose, on the sentences of a seed."""
        method = name.removesuffix(AGAIN)
        entry, trials = self.table[method], self.trials(method)
        start = {one: self.chosen(before, seed, final=final) for one, before in entry.get("after", {}).items()}
        varied = [*entry.get("common", self.common), *(entry["own"] if self.own else [])]
        best = {one: Best(one, trials) for one in dict.fromkeys(itertools.chain(*varied))}
        random = {"seed": seed + OTHER_SEED} if name != method else {}
        group, config = (name, self.final) if final else (f"{name}: chosen", self.small)
        added = self.plan.add(group, config, {name: entry["change"] | random}, [seed], best | start, settings="level")
        return added[name, seed]

    def runs(self, name: str) -> pd.DataFrame:
        """The final runs of a method, trained now or found, with their encoders: see `with_encoders`."""
        members = self.table[name].get("sum", [name])
        done = pd.concat([self.plan.runs(one) for one in members], ignore_index=True)
        if members == [name]:
            return done
        both = with_encoders(done, {name: members})
        return both[both.method == name]


def whitened(done: pd.DataFrame, config: RunConfig) -> pd.DataFrame:
    """Rows of `Field.runs` whose encoders are read through BERT-whitening, each fitted on the sentences that its run drew from
    the corpus of `config`."""
    lines = done.to_dict("records")
    for line in lines:
        drawn = {"size": line["run"].config.corpus_size, "seed": line["run"].config.corpus_seed}
        sentences = load_corpus(config.corpus, config.data_folder(), **drawn).columns[0]
        line["encoder"] = Whitened(line.get("encoder") or line["run"].encoder(), sentences)
    return pd.DataFrame(lines)


def _label(change: Mapping[str, Any]) -> str:
    """A setting in words: "rate 0.0001, temperature 0.05"."""
    words = []
    for name, value in change.items():
        written = f"{value:g}" if isinstance(value, float) else str(value)
        words.append(f"{'rate' if name == 'learning_rate' else name.replace('_', ' ')} {written}")
    return ", ".join(words)


# --- Tables, from rows ---


def works(table: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """What the final training of each method costs, all stages together, in that of SimCSE for one epoch, from the published
    costs on the mini-BERT; a method that was not costed is left out."""
    steps = results.rows("small", paper="leaderboard", table="cost", backbone="mini-bert")
    known, relative = {}, costs.relative(steps, table) if len(steps) else steps
    for name, entry in table.items():
        if "sum" in entry:
            known[name] = float(len(entry["sum"]))
        elif costs.is_same_step(entry["change"]):
            known[name] = float(entry["change"].get("epochs", 1))
        elif name in relative.index:
            known[name] = relative.work[name]
    return known


def _over(method: str, rows: pd.DataFrame) -> dict[str, Any]:
    """A method to compare with, in whatever way it is read: on the field the pooling is part of the method."""
    return {"method": method, "pooling": [*rows.pooling.unique()]}


def standings(found: pd.DataFrame, work: Mapping[str, float]) -> pd.DataFrame:
    """Every method over SimCSE, the highest gain of an encoder first; Holm's intervals over the methods of an encoder.

    Args:
        found: scores of the level field, one kind of task. work: see `works`.

    Returns:
        Index backbone, method: what `results.compare` gives, work, and "both encoders", the verdict on the two together.
    """
    by, floors = ["backbone", "method"], results.floors()
    table = results.compare(found, _over("SimCSE", found), by, holm="backbone").reset_index()
    parts = [part.sort_values("gain", ascending=False) for _, part in table.groupby("backbone", sort=False)]
    table = pd.concat(parts or [table])
    verdicts = {name: results.verdict(part, floors=floors) for name, part in table.groupby("method")} | {"SimCSE": ""}
    table["work"], table["both encoders"] = table.method.map(work).astype(float), table.method.map(verdicts)
    return table.set_index(by)


def published(profile: str, *methods: str) -> pd.DataFrame:
    """`standings` of the published STS scores: of all methods, or SimCSE and these."""
    found = results.sts(results.comparable(results.rows(profile, paper="level", table="level", settings="level")))
    table = standings(found, works(read(TABLE)))
    return table[table.index.isin([*methods, "SimCSE"], level="method")] if methods else table


def finding(standing: pd.DataFrame) -> str:
    """What `standings` show, in one sentence: which methods beat SimCSE (the interval lies above 0, the mean above the floor)
    on each encoder."""
    floors, said = results.floors(), []
    for backbone, part in standing.dropna(subset="gain").groupby("backbone", sort=False):
        won = [key for key in part.index if results.verdict(part.loc[[key]], floors=floors) == results.ON_ONE]
        names = " and ".join(method.replace(", ", " with ") for _, method in won)
        who = f"{len(won)} of {len(part)} rivals beat" if len(won) > 2 else f"none of the {len(part)} rivals beats"
        who = f"only {names}, of {len(part)} rivals, beat{'s' * (len(won) == 1)}" if 0 < len(won) <= 2 else who
        said.append(f"{who} SimCSE on the {results.NAMES.get(backbone, backbone)}")
    return f"With equal trials {'; '.join(said)}" if said else ""


def whitening(found: pd.DataFrame, read: pd.DataFrame) -> pd.Series:
    """What whitening adds, the mean over the seeds that have both, from scores and those of the `whitened` encoders.

    Returns:
        Index backbone, method; NaN where it was not measured.
    """
    keys = ["backbone", "method", "seed"]
    plain, white = [results.averages(part).set_index(keys).value for part in (found, read)]
    return (white - plain).groupby(keys[:2]).mean().rename("whitening")


def controls(found: pd.DataFrame, table: Mapping[str, Mapping[str, Any]], work: Mapping[str, float]) -> pd.DataFrame:
    """Every method over what it adds something to, and over SimCSE with as much work (1.4 to 2.8 times SimCSE's: 2 epochs;
    above: 4), with Holm's intervals over these contrasts of an encoder.

    Returns:
        Index backbone, method, over: what `results.compare` gives, and "both encoders", the verdict on the two together.
    """
    pairs = [found[:0].assign(over="")]
    for name in [name for name in found.method.unique() if name in table]:
        passes = min(4, 2 ** round(math.log2(max(1.0, work.get(name, 1.0)))))
        for over in dict.fromkeys([*table[name].get("over", []), LONGER.get(passes, "")]):
            both = found[found.method.isin([name, over])]
            method = both.method.mask(both.method == over, "control")
            pairs += [both.assign(over=f"{name} over {over}", method=method)] if over != name else []
    by = ["backbone", "over", "method"]
    rows = pd.concat(pairs)
    compared = results.compare(rows, _over("control", rows), by, holm="backbone").reset_index()
    compared = compared[compared.method != "control"].dropna(subset="gain")
    compared["over"] = compared.over.str.split(" over ").str[-1]
    verdicts = {key: results.verdict(part) for key, part in compared.groupby(["method", "over"])}
    compared["both encoders"] = [verdicts[key] for key in zip(compared.method, compared.over, strict=True)]
    return compared.set_index(["backbone", "method", "over"])


def choices(tried: pd.DataFrame) -> pd.DataFrame:
    """What dev chose, and how sure that is, from rows of the trials' dev scores.

    Returns:
        Index backbone, method: trials; chosen, the setting with the highest mean dev score (trials of a method's own knob have
        the best rate and temperature of its others, which stand before it); dev, that mean; ahead, by how much it is above the
        next one; alone, what each seed alone would choose.
    """
    by, lines = ["backbone", "method"], []
    for key, part in tried.sort_values("backbone", kind="stable", ascending=False).groupby(by, sort=False):
        wide = part.pivot(index="settings", columns="seed", values="value").reindex(part.settings.unique())
        means = wide.mean(axis=1)
        best, rated = means.idxmax(), means[means.index.str.startswith("rate ")].nlargest(1).index
        alone = [f"{seed}: {'the same' if wide[seed].idxmax() == best else wide[seed].idxmax()}" for seed in wide]
        line = dict(zip(by, key, strict=True)) | {"trials": len(means), "dev": means[best]}
        line["chosen"] = ", ".join(dict.fromkeys([*rated, best]))
        lines.append(line | {"ahead": means[best] - means.drop(best).max(), "alone": "; ".join(alone)})
    return pd.DataFrame(lines, columns=[*by, "trials", "chosen", "dev", "ahead", "alone"]).set_index(by)
