"""Reads a run's event file with TensorBoard and compares it with metrics.jsonl.

    tensorboard_test.py RUN_DIR
"""
import glob
import json
import os
import sys

from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2


def close(left, right):
    return abs(left - right) <= 1e-5 * max(1, abs(left))


def main(run):
    with open(os.path.join(run, "metrics.jsonl")) as lines:
        metrics = [json.loads(line) for line in lines]
    (path,) = glob.glob(os.path.join(run, "events.out.tfevents.*"))
    every = {kind: 0 for kind in ("scalars", "histograms", "images", "tensors")}
    events = event_accumulator.EventAccumulator(path, size_guidance=every)
    events.Reload()
    tags = events.Tags()

    intervals = [m for m in metrics if "test_accuracy" not in m and "final" not in m]
    evaluations = [m for m in metrics if "test_accuracy" in m and "final" not in m]
    assert intervals and evaluations
    for tag, lines, key in (("loss/train", intervals, "train_loss"),
                            ("accuracy/train", intervals, "train_accuracy"),
                            ("run/learning_rate", intervals, "learning_rate"),
                            ("run/images_per_second", intervals, "images_per_second"),
                            ("loss/test", evaluations, "test_loss"),
                            ("accuracy/test", evaluations, "test_accuracy")):
        read = events.Scalars(tag)
        assert [r.step for r in read] == [m["step"] for m in lines], (tag, read, lines)
        assert all(close(m[key], r.value) for r, m in zip(read, lines)), (tag, read, lines)
    for tag in ("norm/gradient", "norm/weights", "compute_ms/rank_0", "wait_ms/rank_1"):
        read = events.Scalars(tag)
        assert [r.step for r in read] == [m["step"] for m in intervals], (tag, read)
        assert all(r.value > 0 for r in read), (tag, read)

    assert sorted(tags["histograms"]) == sorted(
        f"{kind}/{layer}/{name}" for kind in ("weights", "gradients")
        for layer in ("conv1", "conv2", "classes") for name in ("weights", "bias")), tags
    histogram = events.Histograms("weights/conv1/weights")
    assert [h.step for h in histogram] == [40, 80, 120], histogram
    value = histogram[0].histogram_value
    assert value.num == 16 * 3 * 3 * 3 == sum(value.bucket), value
    assert value.min < 0 < value.max, value

    images = sorted(tags["images"])
    # Spread evenly over the test set.
    assert [int(i.split("/")[1].split("_")[0]) for i in images] == [0, 166, 333], images
    for tag in images:
        read = events.Images(tag)
        assert [i.step for i in read] == [m["step"] for m in evaluations], (tag, read)
        assert read[0].width == read[0].height == 16 * 8 + 8, read[0]
    graph = [node.name for node in events.Graph().node]
    assert graph[:2] == ["data", "conv1"] and "classes/weights" in graph, graph
    assert b"seed: 1" in events.Tensors("config")[0].tensor_proto.string_val[0]
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    hparams = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert hparams["learning_rate.base"].number_value == 0.05, hparams
    print(f"TensorBoard read {len(tags['scalars'])} scalars, {len(tags['histograms'])} histograms, "
          f"{len(images)} images, the graph, the hparams and the config")


main(sys.argv[1])
