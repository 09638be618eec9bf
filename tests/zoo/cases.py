# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The table of the zoo: programs, the faults planted around them, and, written down before the program runs, what a report has to say to be right.

What counts as right is what one who knows the program would say of it, not what stepflame can tell.
"""

from dataclasses import dataclass, field

# Classes of the verdict.
OPS = frozenset({"CPU-op-bound", "compute-bound"})
PYTHON = frozenset({"Python-bound"})
COMPUTES = OPS | PYTHON
# It is what the slow steps do that is looked for; whether the verdict names it or the rest of the time is all one.
EVALUATES = COMPUTES | {"validation", "extra-work"}
# What is true of a fault, and does not say what it is: an abstention.
VAGUE_CLASSES, VAGUE_CAUSES = frozenset({"unclear", "extra-work"}), frozenset({"unknown", "extra_work"})


@dataclass(frozen=True)
class Slow:
    """The slow steps that cost most: why, in which function (None: not judged), and every how many-th (None: not judged)."""

    causes: frozenset
    functions: frozenset = None
    every: int = None
    optional: bool = False  # it is right, too, not to tell them
    coarse: frozenset = frozenset({"<module>", "main"})  # functions in which all steps are: true, and no answer


@dataclass(frozen=True)
class Expect:
    classes: frozenset
    slow: Slow = None
    straggler: int = None
    place: frozenset = None  # functions that the verdict may name; None: not judged
    no_place: str = None  # and words that the place must not have
    told: str = None  # words that its evidence has to have
    says: str = None  # words that the verdict has to have,
    never: str = None  # and words that it must not have
    advice: str = None  # words that the advice has to have,
    no_advice: str = None  # and words that it must not have
    prints: str = None  # words that the report has to have somewhere,
    prints_no: str = None  # and words that it must not have
    labels: str = None  # the begin of the names of labels, whose calls the program counts, too


@dataclass(frozen=True)
class Program:
    """words: the script in programs/ and its arguments. needs: modules. source: a checkout and what prepares it (sources.py)."""

    words: tuple
    needs: tuple = ()
    source: str = None
    prepare: str = None
    ranks: int = 0
    about: str = ""


@dataclass(frozen=True)
class Case:
    program: str
    expect: Expect
    fault: str = ""
    python: str = "3.11"
    env: tuple = ()
    tolerated: frozenset = field(default=frozenset())  # causes of other slow steps that are so, or may be
    timed: frozenset = field(default=frozenset())  # causes of other slow steps, whose time the program's own clock has as "planted"

    @property
    def name(self):
        return "-".join(word for word in (self.program, self.fault.replace(":", ""), self.python) if word)


def slow(causes, functions=None, every=None, optional=False):
    return Slow(frozenset(causes.split()), frozenset(functions.split()) if functions else None, every, optional)


def item(every, rhythm=True):
    """A dataset that waits at an item of every N-th batch."""
    return Expect(frozenset({"input-bound"}), slow("sleep", "SlowItems.wait_for_storage", every if rhythm else None))


def cold(every):
    return Expect(frozenset({"input-bound"}), slow("disk_read", "Cold.wait_for_storage", every))


def fsync(every):
    return Expect(frozenset({"checkpoint"}), slow("fsync checkpoint", "Fsync.save_to_disk", every))


def collect(every):
    return Expect(PYTHON, slow("gc", "Collect.clean_up", every))


def lock(every):
    return Expect(frozenset({"lock-bound"}), slow("lock", "Lock.take_lock", every))


def outside(function, *classes):
    """All steps take longer for what the machine lacks, in that function."""
    return Expect(frozenset(classes), place=frozenset({function}))


PAGED = frozenset({"disk_read", "page_fault"})


def work(every):
    return Expect(PYTHON | {"extra-work"}, slow("extra_work python", "Work.log_statistics Work.log_statistics.<locals>.<genexpr>", every))


# the items are made in workers
CRAWL = Expect(
    frozenset({"input-bound"}), slow("data_wait sleep", optional=True), place=frozenset({"SlowItems.wait_for_storage", "Crawl.__getitem__"})
)
QUOTA = Expect(frozenset({"CPU-starved"}), says="its own limit of 0.4 CPUs: throttled in")
HOG = Expect(frozenset({"CPU-starved"}))

PROGRAMS = {
    "hf_trainer": Program(("hf_trainer.py",), ("transformers", "accelerate"), about="transformers' Trainer, GPT-2, evaluation, 2 workers"),
    "hf_trainer_plain": Program(
        ("hf_trainer.py", "--no-eval", "--no-workers"), ("transformers", "accelerate"), about="the same without evaluation and workers"
    ),
    "hf_trainer_workers": Program(("hf_trainer.py", "--no-eval"), ("transformers", "accelerate"), about="the same without evaluation"),
    "lightning_transformer": Program(("lightning_demo.py",), ("lightning",), about="Lightning's demo Transformer"),
    "lightning_boring": Program(("lightning_demo.py", "--validate"), ("lightning",), about="Lightning's demo BoringModel with validation"),
    "manual": Program(("manual.py",), about="LSTM, updates by hand, no DataLoader"),
    "infer": Program(("manual.py", "--infer"), about="inference of an LSTM"),
    "sb3_ppo": Program(("sb3_ppo.py",), ("stable_baselines3",), about="stable-baselines3's PPO"),
    "sb3_dqn": Program(("sb3_ppo.py", "--dqn"), ("stable_baselines3",), about="stable-baselines3's DQN"),
    "pyg_gcn": Program(("pyg_gcn.py",), ("torch_geometric",), about="torch_geometric's GCN on its FakeDataset"),
    "fastai": Program(("fastai_learner.py",), ("fastai",), about="fastai's Learner"),
    "accelerate": Program(("accelerate_loop.py",), ("accelerate",), about="accelerate, accumulation, save_state"),
    "skorch": Program(("skorch_net.py",), ("skorch",), about="skorch's NeuralNetClassifier"),
    "ignite": Program(("ignite_engine.py",), ("ignite",), about="pytorch-ignite's trainer, evaluator and checkpoint"),
    "timm": Program(("timm_resnet.py",), ("timm", "torchvision"), about="timm's resnet10t on torchvision's FakeData"),
    "compiled": Program(("compiled_shapes.py",), about="torch.compile, which compiles again"),
    "ddp": Program(("ranks.py",), ranks=2, about="DDP over gloo, two ranks"),
    "ddp_saves": Program(("ranks.py", "--saves"), ranks=2, about="DDP over gloo, of which rank 0 saves"),
    "fsdp": Program(("ranks.py", "--fsdp"), ranks=2, about="FSDP over gloo, two ranks"),
    "pyro": Program(("pyro_svi.py",), ("pyro",), about="pyro's SVI"),
    "gpytorch": Program(("gpytorch_gp.py",), ("gpytorch",), about="gpytorch's exact GP"),
    "metric_learning": Program(("metric_learning.py",), ("pytorch_metric_learning",), about="pytorch-metric-learning's MetricLossOnly"),
    "monai": Program(("monai_trainer.py",), ("monai", "ignite"), about="monai's SupervisedTrainer"),
    "tabnet": Program(("tabnet.py",), ("pytorch_tabnet",), about="pytorch-tabnet's TabNetClassifier"),
    "sentence_transformer": Program(("sentence_transformer.py",), ("sentence_transformers",), about="sentence-transformers' fit"),
    "neuralforecast": Program(("forecast.py",), ("neuralforecast",), about="neuralforecast's NHITS"),
    "mingpt": Program(("source.py",), (), "karpathy+minGPT", "mingpt", about="minGPT's adder"),
    "dcgan": Program(("source.py",), ("torchvision",), "pytorch+examples", "dcgan", about="dcgan's main.py, on FakeData"),
    "reinforce": Program(("source.py",), ("gymnasium",), "pytorch+examples", "reinforce", about="reinforce.py"),
    "cleanrl_ppo": Program(("source.py",), ("gymnasium", "tyro", "tensorboard"), "vwxyzjn+cleanrl", "cleanrl_ppo", about="cleanrl's ppo.py"),
    "nanogpt": Program(("source.py",), ("numpy",), "karpathy+nanoGPT", "nanogpt", about="nanoGPT's train.py"),
    "word_lm": Program(("source.py", "--forward"), (), "pytorch+examples", "word_lm", about="word_language_model's main.py"),
}
KINDS = (
    "filled_by_thread asked_ahead decoded_by_processes generated at_hand in_bursts under_lock scored_by_thread short_epochs "
    "short_epochs_persistent slow_player equal_players skipped_updates in_bursts_of_work filled_in_c "
    "answered_in_c lock_beside_queue "
    "accumulated_by_hand accumulated_and_compiled updated_by_hand opens_far opens_near lists_far "
    "signalled_by_lock signalled_twice held_while_read in_threes scaled short_epochs_set_up "
    "drops_layers longer_batches reports_each_step"
)
MACHINE = (
    "rewrites_file replaces_file reads_back copies_file writes_aio awaits_aio awaits_ring reads_by_ring writes_by_ring many_threads beside_threads beside_children "
    "copies_lists copies_texts "
    "walks_objects writes_beside_snapshot churns_memory "
    "shares_array few_by_worker few_in_itself work_and_sleep sleep_and_work work_and_collect labels_of_tasks labels_of_generators labels_in_turn"
)
REPORTS = {
    kind: None
    for kind in (
        "samples_slowly samples_quickly unpickles_batches averages_weights flushes_each_step spawns_workers keeps_best reads_under_lock "
        "validates_often workers_of_many_threads prints_to_slow_reader prints_to_file uploads_each_step saves_in_thread logs_norms collects_each_step"
    ).split()
} | {"tokenizes_in_collate": "tokenizers", "scores_by_sklearn": "sklearn"}
DAILY = (
    "reads_small_files streams_archive accumulates_checkpointed keeps_outputs commits_each_step prefetches_loader loads_by_workers parses_in_thread "
    "validates_by_new_workers caches_in_workers spins_for_answer nests_loaders concatenates_history"
)
STORED = {
    "datasets_in_workers": "datasets",
    "datasets_streamed": "datasets",
    "webdataset_decoded": "webdataset",
    "lmdb_in_process": "lmdb",
    "hdf5_in_process": "h5py",
    "images_by_opencv": "cv2",
    "adapters": "peft",
}
HABITS = {
    kind: None
    for kind in (
        "queries_table reads_decoder asks_server takes_tensors asks_again uneven_shards zips_loaders steps_in_backward climbs_first searches_lines two_players "
        "learns_to_learn evaluates_elsewhere shuffles_many draws_negatives replays_moves reads_parts profiles_itself evaluates_some awaits_file"
    ).split()
} | {"gathers_pages": "aiohttp"}
LIBRARIES = {
    "stateful_loader": "torchdata",
    "stateful_loader_alone": "torchdata",
    "inherited_loader": None,
    "plain_loader": None,
    "from_grain": "grain",
    "from_arrow": "pyarrow",
    "from_zarr": "zarr",
    "slow_environment": "gymnasium",
    "quick_environments": "gymnasium",
    "environments_in_turn": "gymnasium",
    "epochs_of_lightning": "lightning",
}
PACKAGED = {"editable": None, "wheel": None, "target": None, "inserted": None, "zipped": None, "cython": "Cython", "cython_loop": "Cython"}
PACKAGED |= {"nuitka": "nuitka", "nuitka_loop": "nuitka"}


def kinds_of(begin, script, kinds, needs=None):
    needs = needs or {}
    return {
        begin + kind: Program((script, kind), (needs[kind],) if needs.get(kind) else (), about="torch, %s" % kind.replace("_", " "))
        for kind in kinds
    }


PROGRAMS.update(kinds_of("loop_", "kinds.py", KINDS.split()))
PROGRAMS.update(kinds_of("machine_", "machine.py", MACHINE.split()))
PROGRAMS.update(kinds_of("library_", "libraries.py", LIBRARIES, LIBRARIES))
PROGRAMS.update(kinds_of("packaged_", "packaged.py", PACKAGED, PACKAGED))
PROGRAMS.update(kinds_of("daily_", "daily.py", DAILY.split()))
PROGRAMS.update(kinds_of("stored_", "stored.py", STORED, STORED))
PROGRAMS.update(kinds_of("habit_", "habits.py", HABITS, HABITS))
PROGRAMS.update(kinds_of("report_", "reports.py", REPORTS, REPORTS))
PROGRAMS["ddp_crowded"] = Program(("ranks.py", "--threads"), ranks=2, about="DDP over gloo, two ranks with as many threads each as there are CPUs")

# Trainer.evaluate's loop, and what calls it
TRAINER_EVALUATES = "Trainer.evaluate Trainer.evaluation_loop Trainer.prediction_step Trainer._evaluate Trainer._maybe_log_save_evaluate"
ROLLOUT = "OnPolicyAlgorithm.collect_rollouts"
FASTAI = "Learner._do_epoch_validate Learner._do_epoch Learner._do_fit Learner.all_batches Learner.one_batch Learner._do_one_batch"
SKORCH = "NeuralNet.run_single_epoch NeuralNet.validation_step NeuralNet.evaluation_step NeuralNet.fit_loop"
IGNITE = "evaluate Engine.run Engine._internal_run_as_gen Engine._run_once_on_dataset_as_gen"
MONAI = "ValidationHandler.__call__ Evaluator.run Workflow.run SupervisedEvaluator._iteration"
TABNET = "TabModel._predict_epoch TabModel._predict_batch TabModel.fit TabNetClassifier.predict_func"
SAVES = "Accelerator.save_state save_accelerator_state save <module>"
MINGPT = "eval_split batch_end_callback GPT.generate"
RANKS = COMPUTES | {"comm-bound"}
WAITS = frozenset({"collective"})

# How many steps are between two faults is such that the fault takes a good part of the time, on a machine like those of 2025.
CASES = [
    Case("hf_trainer", Expect(EVALUATES, slow("validation extra_work op python", TRAINER_EVALUATES, 20))),
    Case("hf_trainer_workers", Expect(COMPUTES)),
    Case("hf_trainer_workers", CRAWL, "crawl:20"),
    Case("hf_trainer_plain", Expect(COMPUTES), python="3.12"),
    Case("hf_trainer_plain", item(10), "item:10"),
    Case("hf_trainer_plain", HOG, "hog"),
    Case("lightning_transformer", Expect(COMPUTES)),
    Case("lightning_transformer", fsync(20), "fsync:20", python="3.10"),
    Case("lightning_transformer", collect(20), "gc:20"),
    Case("lightning_boring", Expect(PYTHON | {"validation", "extra-work"}, slow("validation", None, 50))),
    Case("lightning_boring", item(100), "item:100", python="3.13"),
    Case("manual", Expect(COMPUTES)),
    Case("manual", Expect(frozenset({"extra-work"}), slow("sleep extra_work", "write_summary", 20)), "sleep:20", python="3.13"),
    Case("infer", Expect(COMPUTES)),
    Case("infer", item(20), "item:20"),
    Case("sb3_ppo", Expect(COMPUTES | {"extra-work"}, slow("extra_work python op native", ROLLOUT, 16))),
    Case("sb3_ppo", Expect(COMPUTES | {"extra-work"}, slow("extra_work python op native", ROLLOUT, 16)), python="3.12"),
    Case("sb3_ppo", HOG, "hog", tolerated=frozenset({"extra_work"})),  # its rollouts, which it has without the hog, too
    # steps in which the policy acts, not chance, take longer, and so do those with a log
    Case("sb3_dqn", Expect(COMPUTES | {"extra-work"}, slow("extra_work python op native", None, None, optional=True))),
    Case("pyg_gcn", Expect(COMPUTES), python="3.13"),
    Case("pyg_gcn", item(10), "item:10"),
    Case("fastai", Expect(EVALUATES, slow("validation extra_work op python", FASTAI, 100))),
    Case("fastai", item(50), "item:50"),
    Case("accelerate", Expect(COMPUTES | {"checkpoint"}, slow("checkpoint fsync", SAVES, 20))),
    Case("accelerate", lock(30), "lock:30"),
    Case("accelerate", cold(30), "cold:30"),
    Case("accelerate", outside("Disk.read_item", "input-bound"), "disk:32", tolerated=PAGED),
    Case("metric_learning", outside("Memory.read_item", "memory", "input-bound"), "memory:16", tolerated=PAGED),
    Case("skorch", Expect(EVALUATES, slow("validation extra_work op python", SKORCH, 100, optional=True))),
    # validation takes items of the same dataset: in no rhythm of steps
    Case("skorch", item(50, rhythm=False), "item:50"),
    Case("ignite", Expect(EVALUATES, slow("validation extra_work op python", IGNITE, 50))),
    Case("timm", Expect(OPS)),
    Case("timm", item(5), "item:5"),
    Case("compiled", Expect(PYTHON | {"compile-bound"}, slow("compile python", None, 40))),
    Case("ddp", Expect(RANKS), tolerated=WAITS),
    Case("ddp", Expect(frozenset({"straggler"}), straggler=1, place=frozenset({"augment"})), "rank", tolerated=WAITS),
    Case("ddp", Expect(frozenset({"input-bound", "straggler"}), slow("sleep", "SlowItems.wait_for_storage", 20), straggler=1), "item:20"),
    Case("fsdp", Expect(RANKS), tolerated=WAITS),
    Case("pyro", Expect(COMPUTES)),
    Case("gpytorch", Expect(COMPUTES)),
    Case("gpytorch", lock(30), "lock:30"),
    # Its sampler makes the batches of an epoch at once: 4 % of the time by a clock around its __iter__.
    Case("metric_learning", Expect(COMPUTES, slow("python", "MPerClassSampler.__iter__", 62, optional=True))),
    Case("metric_learning", work(10), "work:10"),
    # its transforms are a good part of each step, in the training process
    Case("monai", Expect(EVALUATES | {"input-bound"}, slow("validation extra_work op python", MONAI, 40, optional=True))),
    Case("tabnet", Expect(EVALUATES, slow("validation extra_work op python", TABNET, 25))),
    Case("sentence_transformer", Expect(COMPUTES)),
    Case("sentence_transformer", collect(10), "gc:10"),
    # some 5 % of the time: on either side of what counts
    Case("neuralforecast", Expect(EVALUATES, slow("validation extra_work op python", None, 50, optional=True))),
    Case("nanogpt", Expect(EVALUATES, slow("validation extra_work op python", "estimate_loss", 50))),
    Case("nanogpt", fsync(20), "fsync:20", tolerated=frozenset({"op", "python", "validation"})),  # it evaluates, too
    Case("word_lm", Expect(EVALUATES, slow("validation extra_work op python", "evaluate", None, optional=True))),
    # every 500th step: one or two in a window
    Case("mingpt", Expect(EVALUATES, slow("validation extra_work op python", MINGPT, None, optional=True))),
    # 4 epochs of 4 minibatches, then a rollout, all in the script's own lines
    Case("cleanrl_ppo", Expect(COMPUTES | {"extra-work"}, slow("extra_work python op native", None, 16))),
    # FakeData makes and scales its images in the training process
    Case("dcgan", Expect(OPS | {"input-bound"})),
    Case("lightning_transformer", QUOTA, "quota"),
    Case("loop_in_bursts_of_work", QUOTA, "quota"),  # it uses less than the quota
    Case("loop_at_hand", Expect(COMPUTES, never="limit of"), "loose_quota"),
    Case("loop_filled_by_thread", outside("Archive.fetch_item", "input-bound")),
    Case("loop_asked_ahead", outside("Archive.fetch_item", "input-bound"), tolerated=frozenset({"sleep"})),  # two at a time
    Case("loop_decoded_by_processes", outside("parse", "input-bound")),
    Case("loop_generated", outside("parse", "input-bound")),
    Case("loop_at_hand", Expect(COMPUTES)),
    Case("loop_in_bursts", Expect(frozenset({"input-bound"})), tolerated=frozenset({"sleep", "thread_wait", "lock", "data_wait"})),
    Case("loop_under_lock", outside("under_lock.<locals>.take_turn", "lock-bound"), tolerated=frozenset({"lock"})),
    Case("loop_filled_in_c", outside("Archive.fetch_item", "input-bound"), tolerated=frozenset({"sleep"})),
    Case("loop_answered_in_c", outside("answered_in_c.<locals>.rank_answers", "thread-bound"), tolerated=frozenset({"thread_wait"})),
    Case("loop_lock_beside_queue", outside("lock_beside_queue.<locals>.take_turn", "lock-bound"), tolerated=frozenset({"lock"})),
    Case("loop_accumulated_by_hand", Expect(COMPUTES)),
    # steps of 2, 3, 4 and 5 backwards: those of 5 may be told as slow, with the work that they have more of
    Case("loop_accumulated_and_compiled", Expect(COMPUTES), tolerated=frozenset({"op", "python", "native"})),
    Case("loop_updated_by_hand", Expect(COMPUTES)),
    Case("loop_opens_far", Expect(frozenset({"input-bound"}), place=frozenset({"Files.read_file"}), says="waiting: file_system", told=".far (fuse)")),
    Case("loop_opens_near", Expect(COMPUTES, never="file system")),
    Case("loop_lists_far", Expect(frozenset({"input-bound"}), place=frozenset({"Files.check_files", "exists"}), told=".far (fuse)")),
    Case("loop_scored_by_thread", outside("Round.score_rounds", "thread-bound"), tolerated=frozenset({"thread_wait"})),
    Case("loop_short_epochs", Expect(frozenset({"input-bound"}), Slow(frozenset({"extra_work", "data_wait", "child_wait", "poll"}), optional=True))),
    Case("loop_short_epochs_persistent", Expect(COMPUTES | {"input-bound", "CPU-starved"}), tolerated=frozenset({"data_wait", "run_queue"})),
    Case("loop_slow_player", Expect(frozenset({"thread-bound", "input-bound"}), place=frozenset({"parse", "simulate"}))),
    Case("loop_equal_players", Expect(frozenset({"thread-bound", "input-bound"}), place=frozenset({"parse", "simulate"}))),
    Case("loop_skipped_updates", Expect(COMPUTES, slow("skipped_update", None, 8))),
    Case("reinforce", Expect(COMPUTES | {"extra-work"}, slow("extra_work python op native", "select_action", None, optional=True))),
]

SAVES = "checkpoint fsync disk_write extra_work disk_read"
SET_WORKERS = "set num_workers"
PAUSED = "find out who pauses it"
WORKED_ON = frozenset({"run_queue", "sleep", "data_wait", "thread_wait", "lock", "op", "python"})


def saved(function):
    """Every 10th step writes to a disk: how much of the time that takes, is the disk's."""
    return Expect(frozenset({"checkpoint", "extra-work"}), slow(SAVES, function, 10), no_advice="num_workers")


def written(functions):
    """The same, where the call does not say that it writes."""
    return Expect(frozenset({"checkpoint", "extra-work"}), slow("disk_write checkpoint extra_work", functions, 10), no_advice="num_workers", never="read")


def crowded(who):
    return Expect(frozenset({"CPU-starved"}), says=who, advice="fewer")


def fetched(*places, **more):
    return Expect(frozenset({"input-bound"}), place=frozenset(places) or None, **more)


# By what a wait means: README.md has them in a table.
CASES += [
    Case("machine_rewrites_file", saved("rewrite_weights")),
    Case("machine_replaces_file", saved("replace_weights")),
    Case("machine_reads_back", saved("save_and_check")),
    Case("machine_copies_file", written("copy_weights")),
    Case("machine_writes_aio", written("save_blocks DirectBlocks.await_block")),
    Case("manual", Expect(frozenset({"unclear"}), slow("pauses"), advice=PAUSED, never="page"), "stop"),
    Case("loop_generated", Expect(frozenset({"input-bound"}), slow("pauses"), place=frozenset({"parse"})), "freeze"),
    Case("machine_many_threads", crowded("its own threads ran"), tolerated=WORKED_ON),
    Case("machine_beside_threads", crowded("its own threads ran"), tolerated=WORKED_ON),
    Case("machine_beside_children", crowded("its child processes ran"), tolerated=WORKED_ON),
    Case("loop_at_hand", Expect(frozenset({"CPU-starved"}), says="other programs", advice="see what else runs", no_advice="fewer"), "hog"),
    # of two ranks that take each other's CPUs, nobody holds the other one up
    Case("ddp_crowded", Expect(RANKS | {"CPU-starved"}), tolerated=WAITS | WORKED_ON),
    # the disk takes longer at times, by the program's own clock
    Case(
        "machine_awaits_aio",
        fetched("DirectBlocks.read_block", "DirectBlocks.await_block", says="waiting: disk_read", no_advice=SET_WORKERS),
        timed=frozenset({"poll", "disk_read"}),
    ),
    Case("machine_awaits_ring", fetched("Ring.read_ring", "Ring.await_ring", never="disk", no_advice=SET_WORKERS)),
    Case("loop_signalled_by_lock", fetched("Archive.fetch_item")),
    Case("loop_signalled_twice", outside("signalled_twice.<locals>.rank_answers", "thread-bound"), tolerated=frozenset({"thread_wait"})),
    Case("loop_held_while_read", outside("held_while_read.<locals>.look_up", "lock-bound"), tolerated=frozenset({"lock"})),
    # its threads read ahead: the items are there, and the loop waits for the GIL that these threads hold
    Case("library_from_grain", Expect(frozenset({"lock-bound", "input-bound"})), tolerated=WORKED_ON | {"gil"}),
    # the lists of numbers that it makes let the collection of garbage begin
    Case("library_from_arrow", fetched("from_arrow.<locals>.take_apart", "take_apart.<locals>.<listcomp>.<listcomp>"), tolerated=frozenset({"gc"})),
    Case("library_from_zarr", fetched(no_advice=SET_WORKERS), tolerated=WORKED_ON),
    Case("library_stateful_loader", fetched("slow_row", no_advice=SET_WORKERS), tolerated=frozenset({"data_wait", "sleep"})),
    Case("library_inherited_loader", fetched("slow_row", no_advice=SET_WORKERS), tolerated=frozenset({"data_wait", "sleep"})),
    Case("library_plain_loader", fetched("slow_row", advice=SET_WORKERS)),
    Case("loop_in_threes", fetched(), tolerated=WORKED_ON),
    Case("loop_scaled", Expect(COMPUTES, slow("skipped_update", None, 6))),
    Case(
        "loop_short_epochs_set_up",
        Expect(
            frozenset({"input-bound"}),
            Slow(frozenset({"extra_work", "data_wait", "child_wait", "poll"}), optional=True),
            advice="persistent_workers=True",
        ),
    ),
    Case(
        "library_epochs_of_lightning",
        Expect(
            frozenset({"input-bound"}),
            Slow(frozenset({"extra_work", "data_wait", "child_wait", "poll"}), optional=True),
            advice="persistent_workers=True",
        ),
    ),
    # no phase has more of the excess than its part: a slower CPU and more of the same work look alike
    Case("loop_drops_layers", Expect(COMPUTES, slow("unknown", optional=True))),
    Case("loop_longer_batches", Expect(COMPUTES, slow("op"))),
    Case("machine_copies_lists", fetched(prints="workers copy pages"), tolerated=WORKED_ON),
    Case("machine_copies_texts", fetched(prints="workers copy pages"), tolerated=WORKED_ON),
    Case("machine_walks_objects", Expect(COMPUTES, prints="child processes copy pages"), tolerated=WORKED_ON),
    Case("machine_writes_beside_snapshot", Expect(COMPUTES, prints="child processes copy pages"), tolerated=WORKED_ON),
    Case("machine_churns_memory", Expect(COMPUTES, prints_no="copy pages"), tolerated=WORKED_ON),
    Case("machine_shares_array", fetched(prints_no="copy pages"), tolerated=WORKED_ON),
    Case("machine_few_by_worker", Expect(frozenset({"input-bound", "unclear"}), says="")),
    Case("machine_few_in_itself", Expect(frozenset({"input-bound", "unclear"}), says="")),
    Case("machine_work_and_sleep", fetched("parse")),
    Case("machine_work_and_collect", fetched("parse"), tolerated=frozenset({"gc"})),
    Case("packaged_editable", fetched("tokenize_text")),
    # among those of others: a function of a library, or the line that asks it
    Case("packaged_wheel", fetched("main", "tokenize_text", no_place=", in ")),
    Case("packaged_zipped", fetched("tokenize_text")),
    Case("packaged_target", fetched("main", "tokenize_text", no_place=", in ")),
    Case("packaged_inserted", fetched("main", "tokenize_text", no_place=", in ")),
    Case("packaged_cython", fetched("main", "tokenize_text", prints="code that Cython compiled")),
    # the loop has no frames, so that nothing is in front of its model
    Case("packaged_cython_loop", Expect(PYTHON | {"input-bound"}, told="tokenize_text")),
    Case("packaged_nuitka", fetched("main", "tokenize_text", prints="code that Nuitka compiled")),
    Case("packaged_nuitka_loop", Expect(PYTHON | {"input-bound"}, told="tokenize_text")),
    Case("machine_labels_of_tasks", Expect(COMPUTES | {"input-bound", "extra-work"}, labels="score "), tolerated=WORKED_ON),
    Case("machine_labels_of_generators", Expect(COMPUTES | {"input-bound", "extra-work"}, labels="stream "), tolerated=WORKED_ON),
    Case("machine_labels_in_turn", Expect(COMPUTES | {"input-bound", "extra-work"}, labels="turn "), tolerated=WORKED_ON),
    Case("library_slow_environment", Expect(frozenset({"thread-bound", "input-bound"}), place=frozenset({"parse", "of_gymnasium.<locals>.Track.step"}))),
    Case("library_quick_environments", Expect(COMPUTES), tolerated=WORKED_ON),
    # Controls: what stands behind the model is no data, whatever makes the batches
    Case(
        "loop_reports_each_step",
        Expect(frozenset({"unclear"}), place=frozenset({"send_metrics"}), says="is spent sleeping", advice="wait for the event itself", never="data"),
    ),
    # a copy of DataLoader without workers wants some
    Case("library_stateful_loader_alone", fetched("slow_row", advice=SET_WORKERS)),
    # the pause takes more than the data
    Case(
        "machine_sleep_and_work",
        Expect(frozenset({"unclear"}), place=frozenset({"pace"}), says="is spent sleeping", advice="wait for the event itself", never="goes into getting data"),
    ),
    # nobody else makes the steps of these environments: Python of the training process does, in front of the model
    Case("library_environments_in_turn", Expect(PYTHON | {"input-bound"}, place=frozenset({"parse", "of_gymnasium.<locals>.Track.step"}), never="process")),
]

MORE_WORKERS = "more DataLoader workers"


def behind(*places):
    """All steps wait for something behind the model: no data."""
    return Expect(frozenset({"unclear", "thread-bound", "extra-work"}), place=frozenset(places), never="data", no_advice="batch")


# What people report in public: README.md has them in a table.
CASES += [
    Case("report_tokenizes_in_collate", fetched("tokenizes_in_collate.<locals>.collate_texts", advice=SET_WORKERS)),
    # who chooses the rows is the training process, whatever its workers do
    Case("report_samples_slowly", fetched("Balanced.__iter__", "parse", no_advice=MORE_WORKERS), tolerated=WORKED_ON),
    # control: the workers are what is too slow
    Case("report_samples_quickly", fetched("Slower.__getitem__", advice=MORE_WORKERS), tolerated=WORKED_ON),
    Case("report_unpickles_batches", Expect(frozenset({"input-bound"}), no_advice=MORE_WORKERS), tolerated=WORKED_ON | {"gc"}),
    Case("report_averages_weights", Expect(COMPUTES | {"extra-work"})),
    Case("report_flushes_each_step", Expect(frozenset({"checkpoint"}), place=frozenset({"flushes_each_step.<locals>.log_row"}), never="data", no_advice="num_workers"), tolerated=frozenset({"fsync"})),
    Case(
        "report_spawns_workers",
        Expect(frozenset({"input-bound"}), Slow(frozenset({"extra_work", "data_wait", "child_wait", "poll"}), optional=True), advice="persistent_workers=True"),
    ),
    Case("report_scores_by_sklearn", Expect(COMPUTES | {"extra-work"})),
    Case("report_keeps_best", Expect(COMPUTES | {"extra-work"}, slow("extra_work op python native kernel", "keeps_best.<locals>.keep_best deepcopy _deepcopy_dict Tensor.__deepcopy__", 10))),
    Case("report_reads_under_lock", fetched("Store.read_rows", no_advice=SET_WORKERS), tolerated=WORKED_ON),
    Case("report_validates_often", Expect(EVALUATES, slow("validation extra_work op python", "validates_often.<locals>.evaluate_model validates_often.<locals>.evaluate_model.<locals>.<genexpr>", 10))),
    # its workers have as many threads as there is no CPU for: more of them make it worse
    Case("report_workers_of_many_threads", Expect(frozenset({"input-bound", "CPU-starved"}), advice="torch.set_num_threads", no_advice=MORE_WORKERS + ": with"), tolerated=WORKED_ON),
    Case("report_prints_to_slow_reader", behind("prints_to_slow_reader.<locals>.print_progress"), tolerated=frozenset({"pipe"})),
    Case("report_prints_to_file", Expect(COMPUTES)),
    Case("report_uploads_each_step", behind("uploads_each_step.<locals>.send_metrics"), tolerated=frozenset({"socket", "thread_wait"})),
    Case("report_saves_in_thread", Expect(frozenset({"lock-bound", "Python-bound", "extra-work"}), slow("gil", None), place=frozenset({"saves_in_thread.<locals>.pickle_state"}), says="the GIL is kept by")),
    Case("report_logs_norms", Expect(COMPUTES)),
    Case("report_collects_each_step", Expect(PYTHON, advice="gc.freeze")),
]

CASES += [
    Case(
        "machine_reads_by_ring",
        fetched("reads_by_ring.<locals>.read_block", "Ring.await_ring", says="waiting: disk_read", no_advice=SET_WORKERS),
        timed=frozenset({"poll", "disk_read"}),
    ),
    Case("machine_writes_by_ring", written("writes_by_ring.<locals>.save_blocks Ring.await_ring")),
]

# What engineers meet each day: README.md has them in a table.
CASES += [
    # the disk is slow for all workers together: no number of them changes that
    Case("daily_reads_small_files", fetched("SmallFiles.read_image", no_advice=MORE_WORKERS + ": with"), "disk", tolerated=WORKED_ON),
    Case("daily_streams_archive", fetched("Shards.rows_of_shard", "Shards.__iter__"), tolerated=WORKED_ON),
    Case("daily_accumulates_checkpointed", Expect(COMPUTES)),
    Case("daily_keeps_outputs", Expect(COMPUTES, prints="grows by")),
    Case(
        "daily_commits_each_step",
        Expect(frozenset({"checkpoint"}), place=frozenset({"commits_each_step.<locals>.log_metric"}), never="data", no_advice="num_workers"),
        tolerated=frozenset({"fsync", "disk_write"}),
    ),
    Case("daily_prefetches_loader", fetched("Slow.decode_row", advice=MORE_WORKERS, no_advice=SET_WORKERS), tolerated=WORKED_ON),
    Case(
        "daily_loads_by_workers",
        Expect(frozenset({"CPU-starved", "input-bound"}), no_advice=MORE_WORKERS + ": with", prints="limits of the cgroup"),
        "quota",
        tolerated=WORKED_ON,
    ),
    # its workers keep up: the training process is handed batches that are there
    Case("daily_loads_by_workers", fetched(no_advice=MORE_WORKERS), tolerated=WORKED_ON),
    # the thread keeps the GIL, and garbage is collected for most of that
    Case("daily_parses_in_thread", Expect(frozenset({"lock-bound", "Python-bound"}), place=frozenset({"parses_in_thread.<locals>.index_documents"}), never="locks"), tolerated=WORKED_ON | {"gil", "gc"}),
    Case(
        "daily_validates_by_new_workers",
        Expect(
            EVALUATES | {"input-bound"},
            slow("validation extra_work op python data_wait child_wait poll", "validates_by_new_workers.<locals>.evaluate_model", 40),
            advice="persistent_workers=True",
        ),
    ),
    Case("daily_caches_in_workers", fetched("Cached.keep_on_disk", "Cached.decode_row", no_advice=SET_WORKERS), tolerated=WORKED_ON | {"fsync"}),
    Case("daily_spins_for_answer", Expect(PYTHON, place=frozenset({"spins_for_answer.<locals>.await_answer"}))),
    Case("daily_nests_loaders", fetched("Slow.decode_row", no_advice=SET_WORKERS), tolerated=WORKED_ON),
    # of the other rank, which waits for it, nothing is to blame
    Case("ddp_saves", Expect(frozenset({"straggler", "checkpoint"}), slow(SAVES, "save_weights", 10), straggler=0), tolerated=WAITS | WORKED_ON),
    Case("daily_concatenates_history", Expect(COMPUTES | {"extra-work"})),
]

# Data as packages store and read it.
CASES += [
    Case("stored_datasets_in_workers", fetched("datasets_in_workers.<locals>.tokenize_rows", "parse", no_advice="keep up"), tolerated=WORKED_ON),
    Case("stored_datasets_streamed", fetched("datasets_streamed.<locals>.split_text", "parse", advice=SET_WORKERS)),
    Case("stored_webdataset_decoded", fetched("webdataset_decoded.<locals>.decode_sample", "parse", no_advice="keep up"), tolerated=WORKED_ON),
    Case("stored_lmdb_in_process", fetched("Stored.read_row", never="swap"), "disk", tolerated=PAGED | WORKED_ON),
    Case("stored_lmdb_in_process", Expect(COMPUTES | {"input-bound", "memory"}, never="swap"), tolerated=PAGED | WORKED_ON),
    Case("stored_hdf5_in_process", fetched("Compressed.read_row", advice=SET_WORKERS)),
    Case("stored_images_by_opencv", fetched("Images.decode_image", no_advice=SET_WORKERS), tolerated=WORKED_ON),
    Case("stored_adapters", Expect(COMPUTES)),
]

# What people write around a model.
CASES += [
    # the later a row stands in the table, the longer it is searched
    Case("habit_queries_table", fetched("Measured.look_up", advice=SET_WORKERS), tolerated=frozenset({"native"})),
    Case("habit_reads_decoder", fetched("reads_decoder.<locals>.read_frames", never="disk", no_advice=SET_WORKERS), tolerated=WORKED_ON),
    Case("habit_asks_server", fetched("asks_server.<locals>.fetch_page", never="disk", no_advice=SET_WORKERS), tolerated=WORKED_ON),
    Case(
        "habit_gathers_pages",
        fetched("gathers_pages", "gathers_pages.<locals>.train", "gathers_pages.<locals>.fetch_part", never="disk", no_advice=SET_WORKERS),
        tolerated=WORKED_ON,
    ),
    Case("habit_takes_tensors", fetched("parse", "make_batches", no_advice=SET_WORKERS), tolerated=WORKED_ON),
    Case("habit_asks_again", fetched("asks_again.<locals>.read_far", no_advice=SET_WORKERS), tolerated=WORKED_ON),
    # each second batch is the slow worker's
    Case("habit_uneven_shards", fetched("Uneven.read_slow_shard", no_advice=SET_WORKERS), tolerated=WORKED_ON),
    Case("habit_zips_loaders", fetched("Texts.split_text", "parse", advice=SET_WORKERS)),
    Case("habit_steps_in_backward", Expect(COMPUTES)),
    Case("habit_climbs_first", Expect(COMPUTES)),
    Case("habit_searches_lines", Expect(COMPUTES)),
    Case("habit_two_players", Expect(COMPUTES)),
    Case("habit_learns_to_learn", Expect(COMPUTES)),
    Case("habit_evaluates_elsewhere", Expect(frozenset({"extra-work", "thread-bound", "validation"}), slow("child_wait extra_work pipe", "evaluates_elsewhere.<locals>.run_evaluation", 20))),
    Case(
        "habit_shuffles_many",
        Expect(COMPUTES | {"input-bound", "extra-work"}, slow("python native op extra_work data_wait", "RandomSampler.__iter__ BatchSampler.__iter__", 40)),
        tolerated=frozenset({"gc"}),
    ),
    Case("habit_draws_negatives", fetched("draws_negatives.<locals>.draw_negatives", advice=SET_WORKERS)),
    Case(
        "habit_replays_moves",
        Expect(
            PYTHON | {"input-bound"},
            place=frozenset({"replays_moves.<locals>.draw_moves", "replays_moves.<locals>.draw_moves.<locals>.<listcomp>"}),
            no_advice=SET_WORKERS,
        ),
    ),
    Case("habit_reads_parts", fetched("Parts.read_part", "Parts.__getitems__"), tolerated=WORKED_ON),
    Case("habit_profiles_itself", Expect(COMPUTES | {"extra-work"}, slow("extra_work op python native", None, 20), never="data")),
    Case("habit_evaluates_some", Expect(EVALUATES, slow("validation extra_work op python", "evaluates_some.<locals>.evaluate_some", 25))),
    Case("habit_awaits_file", Expect(frozenset({"extra-work"}), slow("sleep extra_work", "awaits_file.<locals>.await_file", 15))),
]
