#include "ps/members/join_check.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/text.h"
#include "common/config/compute_settings.h"
#include "common/link/protocol.h"
#include "common/plan/step_plan.h"

namespace muster {
namespace {

constexpr size_t kMostArithmetic = 300;
constexpr size_t kMostWords = 200;  // of a worker in a reason, which has other words, too

std::string SamplesText(int64_t train, int64_t validation, int64_t test) {
  if (validation == 0) return fmt::format("{} training and {} test samples", train, test);
  return fmt::format("{} training, {} validation and {} test samples", train, validation, test);
}

bool IsProgram(const wire::Hello& hello) { return hello.setting_size() == 0; }

std::optional<bool> LossScaling(const wire::Hello& hello) {
  return hello.has_loss_scaling() ? std::optional(hello.loss_scaling()) : std::nullopt;
}

}  // namespace

std::string HostOf(const wire::Hello& hello) {
  constexpr size_t kMost = 64;  // HOST_NAME_MAX
  return Printable(hello.host(), kMost);
}

std::string WorkerName(uint32_t rank, const std::string& host, int64_t pid) {
  return fmt::format("rank {} (host {}, pid {})", rank, host, pid);
}

bool JoinCheck::HasToken(const wire::Hello& hello) const {
  return SameToken(hello.token(), terms_.token);
}

std::string JoinCheck::CheckProtocol(const wire::Hello& hello) const {
  if (!HasToken(hello)) return kWrongToken;
  if (hello.protocol_version() == kProtocolVersion) return "";
  return fmt::format(
      "protocol version {}: expected {}; use the same release of Muster for server and workers",
      hello.protocol_version(), kProtocolVersion);
}

std::string JoinCheck::CheckWork(uint32_t rank, const wire::Hello& hello) const {
  if (std::string why = CheckGraph(hello); !why.empty()) return why;
  if (std::string why = CheckSettings(hello); !why.empty()) return why;
  if (std::string why = CheckData(rank, hello); !why.empty()) return why;
  return CheckArithmetic(rank, hello);
}

void JoinCheck::Joined(uint32_t rank, const wire::Hello& hello) {
  if (arithmetic_.empty() && IsProgram(hello)) {
    arithmetic_ = Printable(hello.arithmetic(), kMostArithmetic);
    arithmetic_name_ = WorkerName(rank, HostOf(hello), hello.pid());
  }
  if (first_) return;
  first_ = rank;
  first_name_ = WorkerName(rank, HostOf(hello), hello.pid());
  data_ = {.train_samples = hello.train_samples(),
           .test_samples = hello.test_samples(),
           .validation_samples = hello.validation_samples(),
           .global_batch = hello.global_batch(),
           .epochs = hello.epochs(),
           .drop_last = hello.drop_last(),
           .loss_scaling = LossScaling(hello),
           .fingerprint = hello.data_fingerprint(),
           .contents = hello.data_contents()};
}

std::string JoinCheck::CheckGraph(const wire::Hello& hello) const {
  if (hello.graph_hash() == layout_.hash()) return "";
  if (hello.variable_size() == 0) {
    return "the graph differs; it is too large for the worker to report where";
  }
  const std::vector<Variable>& ours = layout_.variables();
  const int common = std::min(hello.variable_size(), static_cast<int>(ours.size()));
  for (int i = 0; i < common; ++i) {
    const wire::VariableShape& theirs = hello.variable(i);
    const std::string shape = "[" + Join(theirs.shape(), ",") + "]";
    const auto shown = [](const std::string& words) { return Printable(words, kMostWords); };
    if (theirs.name() != ours[i].name || shape != ours[i].ShapeString()) {
      return fmt::format(
          "the graph differs: variable {} is {} {} in the server and {} {} in the worker", i,
          ours[i].name, ours[i].ShapeString(), shown(theirs.name()), shown(shape));
    }
  }
  if (hello.variable_size() != static_cast<int>(ours.size())) {
    const bool more_here = hello.variable_size() < static_cast<int>(ours.size());
    return fmt::format(
        "the graph differs: variable {} is only in the {}",
        more_here ? ours[common].name : Printable(hello.variable(common).name(), kMostWords),
        more_here ? "server" : "worker");
  }
  if (hello.layer_size() == 0) {
    return "the graph differs in a layer's settings or inputs; it has too many layers for "
           "the worker to report which";
  }
  const std::vector<std::string> lines = layout_.description();
  for (int i = 0; i < std::min(hello.layer_size(), static_cast<int>(lines.size())); ++i) {
    if (hello.layer(i) != lines[i]) {
      return fmt::format("the graph differs: \"{}\" in the server and \"{}\" in the worker",
                         lines[i], Printable(hello.layer(i), kMostWords));
    }
  }
  return fmt::format("the graph differs: {} layers in the server and {} in the worker",
                     lines.size(), hello.layer_size());
}

std::string JoinCheck::CheckSettings(const wire::Hello& hello) const {
  if (hello.setting_size() == 0) return "";  // the worker's program has no config
  const auto difference =
      FirstDifference(terms_.settings, {hello.setting().begin(), hello.setting().end()});
  if (!difference) return "";
  return fmt::format(
      "the config differs: {}. Start server and workers with the same config and settings",
      Printable(*difference));
}

std::string JoinCheck::CheckData(uint32_t rank, const wire::Hello& hello) const {
  if (hello.train_samples() <= 0) return "the worker found no training samples";
  constexpr int64_t kMostSamples = StepPlan::kMostSamples;
  const auto counts = [](const int64_t samples) { return 0 <= samples && samples <= kMostSamples; };
  const std::string theirs =
      SamplesText(hello.train_samples(), hello.validation_samples(), hello.test_samples());
  if (!counts(hello.train_samples()) || !counts(hello.test_samples()) ||
      !counts(hello.validation_samples())) {
    return fmt::format("rank {} has {}; expected at most {} of each", rank, theirs, kMostSamples);
  }
  if (!first_) return "";
  // The first that joined is not more often right than the others, so no one is blamed.
  const std::string name = WorkerName(rank, HostOf(hello), hello.pid());
  const std::string ours =
      SamplesText(data_.train_samples, data_.validation_samples, data_.test_samples);
  if (theirs != ours) {
    return fmt::format("{} has {}, but {} has {}: all workers need the same data", name, theirs,
                       first_name_, ours);
  }
  if (hello.global_batch() != data_.global_batch || hello.epochs() != data_.epochs) {
    return fmt::format(
        "{} says a batch of {} and {} epochs, but {} says {} and {} (0: nothing): all programs "
        "must "
        "say the same",
        name, hello.global_batch(), hello.epochs(), first_name_, data_.global_batch, data_.epochs);
  }
  if (hello.drop_last() != data_.drop_last) {
    return fmt::format("{} says drop_last={}, but {} says {}: all programs must say the same", name,
                       hello.drop_last(), first_name_, data_.drop_last);
  }
  if (LossScaling(hello) != data_.loss_scaling) {
    const auto text = [](std::optional<bool> says) {
      return !says ? "nothing of a loss scale" : *says ? "loss scale on" : "loss scale off";
    };
    return fmt::format(
        "{} says {}, but {} says {}: all programs must say the same (muster_set_loss_scaling, "
        "Job(precision=...) in Python)",
        name, text(LossScaling(hello)), first_name_, text(data_.loss_scaling));
  }
  if (hello.data_fingerprint() != data_.fingerprint) {
    return fmt::format(
        "{} and {} see data (or constants of their programs) of the same size but different "
        "contents or order, with the fingerprints {:016x} and {:016x}: compare both hosts' data, "
        "because "
        "either may be the wrong one",
        name, first_name_, hello.data_fingerprint(), data_.fingerprint);
  }
  if (hello.data_contents() != data_.contents) {
    return fmt::format(
        "{} and {} see photos with the same names but different contents, with the hashes {:016x} "
        "and {:016x}: compare both hosts' data, because either may be the wrong one",
        name, first_name_, hello.data_contents(), data_.contents);
  }
  return "";
}

std::string JoinCheck::CheckArithmetic(uint32_t rank, const wire::Hello& hello) const {
  const std::string theirs = Printable(hello.arithmetic(), kMostArithmetic);
  if (!IsProgram(hello) || theirs.empty() || arithmetic_.empty() || theirs == arithmetic_)
    return "";
  return fmt::format(
      "{} computes with \"{}\", but {} with \"{}\": expected the same in all processes, because "
      "the bits of the result would depend on who computes which slice. Use one model of GPU "
      "(--devices) and the same libraries; if other bits do not matter, Job(deterministic=False) "
      "in Python, no muster_set_arithmetic in C",
      WorkerName(rank, HostOf(hello), hello.pid()), theirs, arithmetic_name_, arithmetic_);
}

}  // namespace muster
