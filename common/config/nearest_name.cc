#include "common/config/nearest_name.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "common/base/text.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

// Damerau-Levenshtein distance in half edits. Swapping neighbours costs 1 and any other edit costs
// 2, because swaps are the most common typo.
size_t Distance(const std::string& a, const std::string& b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = 2 * (i + j);
        continue;
      }
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 2, d[i][j - 1] + 2, d[i - 1][j - 1] + (same ? 0 : 2)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

struct Word {
  const char* key;      // in lower case
  const char* message;  // the type of message in which the word has this meaning; nullptr for any
  const char* instead;
};

constexpr const char* kRate = "write learning_rate { base: 0.1 } at the top level";
constexpr const char* kBatch =
    "write run { global_batch: 256 }, the samples of a step over all workers, or "
    "run { batch_per_worker: 64 }";
constexpr const char* kEpochs = "write run { epochs: 10 }";
constexpr const char* kInferred = "leave it out: the input size is inferred";
constexpr const char* kLoss =
    "write the loss as the last layer: layer { name: \"loss\" softmax_cross_entropy {} }";
constexpr const char* kActivation =
    "write a separate layer after this one: layer { name: \"relu1\" relu {} }";
constexpr const char* kDevices = "write worker { devices: \"auto:2\" }, or launch with --devices";
constexpr const char* kDense = "write dense { units: 10 }";
constexpr const char* kConv = "write conv2d { filters: 32 kernel: 3 }";
constexpr const char* kPrefetch =
    "write data { prefetch_threads: 2 }, which applies to each worker";

constexpr Word kWords[] = {
    {"lr", nullptr, kRate},
    {"learning_rate", "Optimizer", kRate},
    {"learning_rate", "Run", kRate},
    {"lr", "LearningRate", "write base"},
    {"initial_learning_rate", nullptr, kRate},
    {"batch_size", nullptr, kBatch},
    {"batch", "Config", kBatch},
    {"batch", "Run", kBatch},
    {"batch", "Data", kBatch},
    {"train_batch_size", nullptr, kBatch},
    {"num_epochs", nullptr, kEpochs},
    {"n_epochs", nullptr, kEpochs},
    {"max_epochs", nullptr, kEpochs},
    {"epoch", nullptr, kEpochs},
    {"max_steps", nullptr, "write run { steps: 1000 }"},
    {"kernel_size", nullptr, "write kernel: 3, or kernel: [3, 5] for height and width"},
    {"pool_size", nullptr, "write kernel: 2"},
    {"strides", nullptr, "write stride: 2"},
    {"out_channels", nullptr, "write filters"},
    {"out_features", nullptr, "write units"},
    {"in_channels", nullptr, kInferred},
    {"in_features", nullptr, kInferred},
    {"num_features", nullptr, kInferred},
    {"input_shape", nullptr, kInferred},
    {"activation", nullptr, kActivation},
    {"linear", nullptr, kDense},
    {"fully_connected", nullptr, kDense},
    {"conv", nullptr, kConv},
    {"convolution", nullptr, kConv},
    {"batchnorm", nullptr, "write batch_norm {}"},
    {"batchnorm2d", nullptr, "write batch_norm {}"},
    {"maxpool2d", nullptr, "write max_pool { kernel: 2 }"},
    {"avgpool2d", nullptr, "write avg_pool { kernel: 2 }"},
    {"adaptiveavgpool2d", nullptr, "write global_avg_pool {}"},
    {"p", "Dropout", "write rate"},
    {"eps", nullptr, "write epsilon"},
    {"betas", nullptr, "write beta1: 0.9 beta2: 0.999"},
    {"beta_1", nullptr, "write beta1"},
    {"beta_2", nullptr, "write beta2"},
    {"loss", nullptr, kLoss},
    {"criterion", nullptr, kLoss},
    {"cross_entropy", nullptr, "write softmax_cross_entropy {}"},
    {"binary_cross_entropy", nullptr, "write sigmoid_cross_entropy {}"},
    {"path", "Data", "write dir"},
    {"root", "Data", "write dir"},
    {"data_dir", nullptr, "write data { dir: \"DIR\" }, or launch with --data"},
    {"class_weight", nullptr, "write data { class_weights: [1, 10] }"},
    {"mixup", nullptr, "write data { preprocess { mixup_alpha: 0.2 } }"},
    {"scheduler", nullptr, "write learning_rate { type: COSINE base: 0.1 }, or another type"},
    {"lr_scheduler", nullptr, "write learning_rate { type: COSINE base: 0.1 }, or another type"},
    {"gamma", "LearningRate", "write factor"},
    {"step_size", nullptr, "write interval_samples, in samples"},
    {"milestones", nullptr, "write milestone_samples, in samples"},
    {"num_workers", "Data", kPrefetch},
    {"num_workers", nullptr, "write cluster { workers: 4 }"},
    {"shuffle", nullptr, "leave it out: training samples are always shuffled, using run.seed"},
    {"gpus", nullptr, kDevices},
    {"device", nullptr, kDevices},
    {"amp", nullptr, "write worker { precision: BF16 }, or FP16 for GPUs without BF16"},
    {"early_stopping", nullptr, "write evaluation { every_epochs: 1 patience: 5 }"},
    {"layers", nullptr, "write one layer { ... } per layer"},
    {"layer", "Config",
     "write model { layer { ... } }, or, if this file is a network, launch a config that includes "
     "it with model_file"},
};

// For a key given at the top level, the config message that it belongs in: "run" for epochs.
std::string Owner(const pb::Descriptor* config, const std::string& key) {
  for (int i = 0; i < config->field_count(); ++i) {
    const pb::Descriptor* type = config->field(i)->message_type();
    if (type == nullptr || type == config) continue;
    if (type->FindFieldByName(key) != nullptr) return config->field(i)->name();
  }
  return "";
}

// Returns what to write instead of a word from another framework.
std::string InsteadOf(const pb::Descriptor* in, const std::string& key) {
  std::string lower = key;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  const Word* found = nullptr;
  for (const Word& word : kWords) {
    if (lower != word.key || (word.message != nullptr && word.message != in->name())) continue;
    if (found == nullptr || word.message != nullptr) found = &word;
  }
  if (found != nullptr) return found->instead;
  const pb::Descriptor* config = in->file()->FindMessageTypeByName("Config");
  if (in != config) return "";
  const std::string owner = Owner(config, lower);
  return owner.empty() ? "" : fmt::format("write {} {{ {}: ... }}", owner, lower);
}

}  // namespace

std::string NearestName(const std::string& name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(4, name.size());  // up to half of the name may be wrong
  for (const std::string& candidate : candidates) {
    const size_t distance = Distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string SuggestName(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string nearest = NearestName(name, candidates);
  const std::string all = fmt::format("expected one of {}", Join(candidates, ", "));
  return nearest.empty() ? all : fmt::format("did you mean \"{}\"? ({})", nearest, all);
}

std::vector<std::string> FieldNames(const pb::Descriptor* type) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(type->field_count()));
  for (int i = 0; i < type->field_count(); ++i) {
    if (type->field(i)->message_type() == type) continue;  // `resolved`, which users do not write
    names.push_back(type->field(i)->name());
  }
  return names;
}

std::string UnknownKey(const pb::Descriptor* type, const std::string& name) {
  const std::string instead = InsteadOf(type, name);
  return "unknown key; " + (instead.empty() ? SuggestName(name, FieldNames(type)) : instead);
}

}  // namespace muster
