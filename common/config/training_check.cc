#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/config/config_check.h"
#include "common/config/data_format.h"
#include "common/config/update_settings.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

void CheckOptimizer(const config::Config& config, ConfigErrors& errors) {
  const config::Optimizer& optimizer = config.optimizer();
  if (optimizer.type() == config::Optimizer::ADAMW &&
      TraitsOf(optimizer).decay_type != config::Optimizer::DECOUPLED) {
    errors.Fail(
        "optimizer.decay_type",
        "COUPLED contradicts type ADAMW, which is ADAM with decoupled decay: use type ADAM, or "
        "remove decay_type");
  }
  if (config.cluster().wire_dtype() == config::Cluster::FP16 && ScalesLoss(config)) {
    errors.Fail("cluster.wire_dtype",
                "FP16 contradicts worker.precision FP16, whose gradients are multiplied by a loss "
                "scale and may exceed 65504: expected FP32 or BF16");
  }
  if (config.evaluation().use_ema() && !optimizer.has_ema_decay()) {
    errors.Fail("evaluation.use_ema",
                "needs a moving average of the weights: set optimizer.ema_decay");
  }
}

void CheckLearningRate(const config::LearningRate& rate, ConfigErrors& errors) {
  using config::LearningRate;
  const std::string key = "learning_rate.", type = LearningRate::Type_Name(rate.type());
  const int milestones = rate.milestone_samples_size();
  if (rate.type() == LearningRate::STEP && rate.has_interval_samples() == (milestones > 0)) {
    errors.Fail(key + (milestones > 0 ? "milestone_samples[0]" : "interval_samples"),
                "{}: type STEP needs exactly one of interval_samples, milestone_samples",
                milestones > 0 ? "interval_samples is set too" : "missing");
  }
  if (rate.type() == LearningRate::EXPONENTIAL && !rate.has_interval_samples()) {
    errors.Fail(key + "interval_samples", "missing: type {} needs it", type);
  }
  if (rate.type() == LearningRate::PLATEAU && rate.factor() >= 1) {
    errors.Fail(key + "factor", "expected less than 1 for type PLATEAU, got {:g}", rate.factor());
  }
  if (rate.type() == LearningRate::PLATEAU && rate.end() > rate.base()) {
    errors.Fail(key + "end",
                "expected at most base, {:g}, because the rate falls from base to end, got {:g}",
                rate.base(), rate.end());
  }
  int64_t last = rate.warmup_samples();
  for (int i = 0; rate.type() == LearningRate::STEP && i < milestones; ++i) {
    if (rate.milestone_samples(i) <= last) {
      errors.Fail(
          fmt::format("{}milestone_samples[{}]", key, i), "expected more than {}, {}, got {}",
          i == 0 ? "warmup_samples" : "the previous milestone", last, rate.milestone_samples(i));
    }
    last = rate.milestone_samples(i);
  }
  if (rate.has_total_samples() && rate.warmup_samples() >= rate.total_samples()) {
    errors.Fail(key + "warmup_samples", "expected less than total_samples, {}, got {}",
                rate.total_samples(), rate.warmup_samples());
  }
}

void CheckUnits(const config::Model& model, ConfigErrors& errors) {
  for (int i = 0; i < model.layer_size(); ++i) {
    const config::Layer& layer = model.layer(i);
    if (!layer.has_dense() || layer.dense().has_units()) continue;
    errors.Fail(fmt::format("model.layer[{}].dense.units", i),
                "missing: required except in the last layer before the loss");
  }
}

void CheckNormalization(const config::Preprocess& p, int64_t channels, ConfigErrors& errors) {
  if (channels == 0) return;  // the check of the format has said why
  for (const auto& [key, count] : {std::pair{"mean", p.mean_size()}, {"stddev", p.stddev_size()}}) {
    if (count == 0 || count == channels) continue;
    errors.Fail(fmt::format("data.preprocess.{}", key),
                "expected one number for each of {} channels, got {}", channels, count);
  }
}

void CheckNpz(const config::Data& data, ConfigErrors& errors) {
  const config::NpzData& npz = data.npz();
  if (!npz.has_height() || !npz.has_width() || !npz.has_channels() || !npz.has_classes()) {
    errors.Fail("data.dir",
                "missing: the arrays give the network's input and the number of classes: set it "
                "with --data DIR, or set data.npz {{ height: … width: … channels: … classes: … }}");
    return;
  }
  if (npz.classes() == 1) {
    errors.Fail("data.npz.classes", "expected at least 2, or 0 for values to predict, got 1");
  }
}

void CheckImageFolder(const config::Data& data, ConfigErrors& errors) {
  const config::Preprocess& p = data.preprocess();
  if (data.class_names_size() == 0) {
    errors.Fail("data.dir",
                "expected a directory with one folder of images per class, in train/ or at the "
                "top level, found {}",
                data.dir().empty() ? "no data.dir: set it with --data DIR or --set data.dir=DIR"
                                   : "none in \"" + data.dir() + "\"");
  }
  if (!p.has_crop_height() || !p.has_crop_width()) {
    errors.Fail("data.preprocess.crop_height",
                "missing: format IMAGE_FOLDER needs crop_height and crop_width, the network's "
                "input size");
  }
  if (data.image_folder().channels() == 2) {
    errors.Fail("data.image_folder.channels", "expected 1 (grey) or 3 (red, green, blue), got 2");
    return;
  }
  for (const auto& [key, values] : {std::pair{"mean", &p.mean()}, {"stddev", &p.stddev()}}) {
    for (int i = 0; i < values->size(); ++i) {
      if (std::abs(values->Get(i)) <= 10) continue;
      errors.Fail(fmt::format("data.preprocess.{}[{}]", key, i),
                  "expected at most 10 (pixel / 255), got {:g}", values->Get(i));
    }
  }
  if (p.scale_min() > p.scale_max()) {
    errors.Fail("data.preprocess.scale_min", "expected at most scale_max, {}, got {}",
                p.scale_max(), p.scale_min());
  }
  if (p.ratio_min() > p.ratio_max()) {
    errors.Fail("data.preprocess.ratio_min", "expected at most ratio_max, {}, got {}",
                p.ratio_max(), p.ratio_min());
  }
}

// How to change the number of classes if the names are right.
std::string ClassesHint(const config::Data& data, int64_t names) {
  if (names < 2) return "";
  if (data.format() == config::Data::NPZ) return fmt::format(", set data.npz.classes={}", names);
  return data.format() == config::Data::SYNTHETIC
             ? fmt::format(", set data.synthetic.classes={}", names)
             : "";
}

void CheckData(const config::Data& data, ConfigErrors& errors) {
  if (data.format() == config::Data::IMAGE_FOLDER) CheckImageFolder(data, errors);
  if (data.format() == config::Data::NPZ) CheckNpz(data, errors);
  CheckNormalization(data.preprocess(), StoredShape(data).channels, errors);
  const auto names = std::ssize(NamesOfClasses(data));
  if (names > 0 && names != DataClasses(data)) {
    errors.Fail(
        "data.class_names",
        "expected {} names, one for each class, got {}: name every class in the order of the "
        "labels{}, or remove class_names",
        DataClasses(data), names, ClassesHint(data, names));
  }
  const std::vector<float> weights = ClassWeights(data);
  if (!weights.empty() && std::ssize(weights) != DataClasses(data)) {
    errors.Fail("data.class_weights", "expected {} numbers, one for each class, got {}",
                DataClasses(data), weights.size());
  } else if (!weights.empty() && std::ranges::all_of(weights, [](float w) { return w == 0; })) {
    errors.Fail("data.class_weights", "expected at least one above 0, otherwise no sample counts");
  }
  constexpr int64_t kMostElements = int64_t{1} << 31;  // of an image: 8 GiB as floats
  if (StoredShape(data).elements() > kMostElements) {
    errors.Fail("data", "a sample of {} has more than {} elements", StoredShape(data).ToString(),
                kMostElements);
  }
}

void CheckEvaluation(const config::Config& config, ConfigErrors& errors) {
  const config::Evaluation& evaluation = config.evaluation();
  const bool has_values = HasValues(config.data());
  if (has_values && evaluation.has_stop_at_accuracy()) {
    errors.Fail("evaluation.stop_at_accuracy",
                "needs classes, but y holds values (data.npz.classes is 0): use "
                "evaluation.patience to stop by the loss");
  }
  const bool has_matrix = evaluation.confusion_matrix() && !has_values;
  constexpr int64_t kMostClasses = 4096;  // 16.8 million numbers
  if (has_matrix && DataClasses(config.data()) > kMostClasses) {
    errors.Fail("evaluation.confusion_matrix", "expected at most {} classes, got {}", kMostClasses,
                DataClasses(config.data()));
  }
  constexpr uint32_t kMostPredictions = 16384;  // in one message
  if (has_matrix && evaluation.batch() > kMostPredictions) {
    errors.Fail("evaluation.batch", "expected at most {} with confusion_matrix, got {}",
                kMostPredictions, evaluation.batch());
  }
  const bool no_images = config.data().format() == config::Data::SYNTHETIC &&
                         config.data().synthetic().test_samples() == 0 &&
                         config.data().validation_fraction() == 0;
  const bool none_before_the_end = evaluation.every_epochs() == 0 && evaluation.every_steps() == 0;
  if (config.learning_rate().type() != config::LearningRate::PLATEAU) return;
  if (none_before_the_end) {
    errors.Fail("learning_rate.type",
                "PLATEAU needs evaluations during the run: expected evaluation.every_epochs or "
                "every_steps");
  }
  if (no_images) {
    errors.Fail("learning_rate.type",
                "PLATEAU needs samples to evaluate: expected data.synthetic.test_samples or "
                "data.validation_fraction above 0");
  }
}

void CheckPreprocess(const config::Data& data, ConfigErrors& errors) {
  const config::Preprocess& p = data.preprocess();
  const std::string key = "data.preprocess.";
  if (p.has_crop_height() != p.has_crop_width()) {
    errors.Fail(key + (p.has_crop_height() ? "crop_height" : "crop_width"),
                "expected crop_height and crop_width together");
  }
  const Shape stored = StoredShape(data);
  if (p.crop_height() > stored.height || p.crop_width() > stored.width) {
    errors.Fail(key + "crop_height", "a crop of {}x{} is larger than the images, {}x{}",
                p.crop_height(), p.crop_width(), stored.height, stored.width);
  }
  if (p.crop_padding() > 0 && !p.has_crop_height()) {
    errors.Fail(key + "crop_padding", "needs crop_height and crop_width");
  }
  if (p.contrast_min() > p.contrast_max()) {
    errors.Fail(key + "contrast_min", "expected at most contrast_max, {}, got {}", p.contrast_max(),
                p.contrast_min());
  }
}

}  // namespace

void CheckTraining(const config::Config& config, ConfigErrors& errors) {
  CheckOptimizer(config, errors);
  CheckLearningRate(config.learning_rate(), errors);
  if (HasProgram(config)) return CheckEvaluation(config, errors);
  CheckData(config.data(), errors);
  if (HasValues(config.data()) || DataClasses(config.data()) > 0)
    CheckUnits(config.model(), errors);
  CheckPreprocess(config.data(), errors);
  CheckEvaluation(config, errors);
}

}  // namespace muster
