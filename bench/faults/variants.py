"""The configs that bench/chaos.py trains, with every optimizer and schedule, the moving average, clipping, SKIP_STEP,
16 bits, and evaluations of every kind. Also defines which results two runs of one config must have in common."""
import json
import os

STEPS = 1650  # 150 epochs of 11 steps
SILENCE_S = 2

NETWORK = """
run { epochs: 150 global_batch: 48 slices: 4 log_every_steps: 3 %(run)s }
data { format: SYNTHETIC synthetic { train_samples: 500 test_samples: 90 height: 14 width: 14 }
       preprocess { crop_height: 12 crop_width: 12 flip: true } }
model {
  layer { name: "conv" conv2d { filters: 8 kernel: 3 padding: SAME } }
  layer { name: "norm" batch_norm {} }
  layer { name: "relu" relu {} }
  layer { name: "pool" max_pool { kernel: 3 stride: 2 padding: SAME } }
  layer { name: "hidden" dense { units: 32 } }
  layer { name: "drop" dropout { rate: 0.3 } }
  layer { name: "out" dense { units: 10 } }
  layer { name: "loss" softmax_cross_entropy {} }
}
optimizer { %(optimizer)s }
learning_rate { %(rate)s }
evaluation { batch: 16 %(evaluation)s }
cluster { workers: 2 chunk_bytes: 4096 %(cluster)s }
checkpoint { every_steps: 40 }
deadlines { start_s: 30 silence_s: %(silence)d }
"""

VARIANTS = [
    dict(optimizer="type: SGD", rate="base: 0.05"),
    dict(optimizer="type: MOMENTUM weight_decay: 0.001",
         rate="base: 0.01 type: COSINE warmup_samples: 600"),
    dict(optimizer="type: NESTEROV ema_decay: 0.9", rate="base: 0.01 type: POLYNOMIAL power: 2",
         evaluation="use_ema: true every_steps: 7"),
    dict(optimizer="type: ADAM ema_decay: 0.95 clip_norm: 0.5", rate="base: 0.003 type: ONE_CYCLE",
         evaluation="use_ema: true"),
    dict(optimizer="type: ADAMW weight_decay: 0.05 clip_value: 0.1",
         rate="base: 0.003 type: EXPONENTIAL factor: 0.5 interval_samples: 700",
         run="on_nonfinite: SKIP_STEP"),
    dict(optimizer="type: RMSPROP", rate="base: 0.001 type: STEP milestone_samples: [900, 2100]",
         evaluation="every_steps: 5 every_epochs: 0"),
    dict(optimizer="type: RMSPROP momentum: 0.9", rate="base: 0.0005", run="on_nonfinite: SKIP_STEP"),
    dict(optimizer="type: MOMENTUM ema_decay: 0.9", rate="base: 0.01", cluster="wire_dtype: BF16",
         evaluation="use_ema: true"),
    dict(optimizer="type: ADAM", rate="base: 0.003", evaluation="stop_at_accuracy: 0.6"),
    dict(optimizer="type: MOMENTUM", rate="base: 0.005 scaling: LINEAR"),
    dict(optimizer="type: MOMENTUM", rate="base: 0.01", evaluation="skip_final: true"),
]
PARTS = ("run", "optimizer", "rate", "evaluation", "cluster")
# The fields of metrics.jsonl that do not depend on time.
EXACT = ("step", "samples", "epoch", "learning_rate", "train_loss", "train_accuracy", "skipped_steps",
         "test_accuracy", "test_loss", "test_top5_accuracy", "best_test_accuracy", "best_step", "steps",
         "validation_accuracy", "validation_loss", "best_validation_accuracy", "total_steps", "final", "reason", "stopped_early", "stop_reason", "weights_hash")


def config_of(variant):
    return NETWORK % {**dict.fromkeys(PARTS, ""), **VARIANTS[variant], "silence": SILENCE_S}


def metrics(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    # Exclude events, which depend on time.
    return [{key: line.get(key) for key in EXACT} for line in lines if "event" not in line]
