"""Settings of an experiment of APEBench that is over in seconds."""

TINY = {
    "scenario": "diff_adv",
    "task": "predict",
    "train": "one",
    "num_points": 32,
    "num_train_samples": 2,
    "train_temporal_horizon": 3,
    "num_test_samples": 2,
    "test_temporal_horizon": 3,
    "batch_size": 4,
    "optim_config": "adam;30;constant;0.01",
    "record_loss_every": 1,
}
