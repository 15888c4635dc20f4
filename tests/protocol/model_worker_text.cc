#include <fmt/core.h>

#include <iterator>

#include "common/link/wire_values.h"
#include "ps/evaluate/evaluation.h"
#include "tests/protocol/model_worker.h"

namespace muster::testing {
namespace {

template <typename... Args>
void Append(std::string& text, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
}

void AppendSaying(std::string& text, const wire::WorkerMessage& message,
                  const ModelWorker::Names& names, bool intact) {
  if (message.has_slice_loss()) {
    const wire::SliceLoss& loss = message.slice_loss();
    Append(text, "loss {} of {} under {}", loss.slice(), loss.step(), names(loss.order()));
  } else if (message.has_gradient_part()) {
    const wire::GradientPart& part = message.gradient_part();
    Append(text, "part {} of {} under {}", part.chunk(), part.step(), names(part.order()));
  } else if (message.has_evaluated_block()) {
    const wire::EvaluatedBlock& block = message.evaluated_block();
    Append(text, "block {} of {} {}", block.block(), SetName(block.set()), block.version());
  } else {
    Append(text, "{}", static_cast<int>(message.body_case()));
  }
  text += intact ? "; " : " broken; ";
}

void AppendUnread(std::string& text, const wire::ServerMessage& message,
                  const ModelWorker::Names& names) {
  if (message.has_train()) {
    Append(text, "train {}{} by {}; ", message.train().step(),
           message.train().urgent() ? " at once" : "", names(message.train().order()));
  } else if (message.has_activate()) {
    Append(text, "activate {}; ", message.activate().version());
  } else if (message.has_weights_chunk()) {
    Append(text, "{}({}) {}; ", message.weights_chunk().average() ? "E" : "W",
           message.weights_chunk().version(), message.weights_chunk().chunk());
  } else if (message.has_evaluate()) {
    Append(text, "evaluate {} {} {}-{}; ", SetName(message.evaluate().set()),
           message.evaluate().version(), message.evaluate().block_begin(),
           message.evaluate().block_end());
  } else {
    Append(text, "{}; ", static_cast<int>(message.body_case()));
  }
}

std::string NodeText(const wire::Subtree& subtree) {
  return fmt::format("{}.{}", subtree.level(), subtree.index());
}

}  // namespace

std::string ModelWorker::Text(const Names& names, uint32_t incarnation) const {
  std::string text;
  Append(text, "worker{} wants {} rank {} reset {}{}{}{}", welcomed_ ? "" : " new",
         wanted_ ? static_cast<int>(*wanted_) : -1, rank_, incarnation - incarnation_,
         leaving_ ? " leaving" : "", stopped_ ? " stopped" : "", ready_due_ ? " not-ready" : "");
  text += " has";
  for (size_t c = 0; c < job_.chunks().size(); ++c) {
    int64_t version = -1;
    while (arrived_.Has(version + 1, c, false)) ++version;
    Append(text, " {}", version);
    if (!job_.bounds().average) continue;
    version = -1;
    while (arrived_.Has(version + 1, c, true)) ++version;
    Append(text, "/{}", version);
  }
  if (job_.bounds().remote) {
    for (const std::vector<int64_t>& copy : copies_) {
      text += " copy";
      for (const int64_t version : copy) Append(text, " {}", version);
    }
  }
  Append(text, " said {} of ", said_);
  for (const ModelOrder& order : orders_) {
    Append(text, "[{}{} of {}", order.evaluates ? "evaluate" : "train", order.urgent ? "!" : "",
           order.version);
    for (const ModelOrder::Part& part : order.parts) {
      Append(text, " {} {}.{} in {}", names(part.order), part.node.level, part.node.index,
             part.buffer);
    }
    for (const uint32_t chunk : order.chunks) Append(text, " c{}", chunk);
    Append(text, " {}-{}]", order.blocks.begin, order.blocks.end);
  }
  text += " unread ";
  for (const wire::ServerMessage& message : unread_) AppendUnread(text, message, names);
  text += " in flight ";
  for (const Saying& saying : in_flight_) {
    const bool intact = saying.words.find("overwritten") == std::string::npos;
    Append(text, "{} ", incarnation - saying.message.address().incarnation());
    AppendSaying(text, saying.message, names, intact);
  }
  return text + '\n';
}

std::string WordsOf(const wire::ServerMessage& message) {
  if (message.has_train()) {
    const wire::Train& train = message.train();
    std::string text =
        fmt::format("{}Train of step {}, order {} in buffer {}, subtrees",
                    train.urgent() ? "urgent " : "", train.step(), train.order(), train.buffer());
    for (const wire::Subtree& subtree : train.subtree()) text += " " + NodeText(subtree);
    if (train.chunk_size() > 0) text += ", chunks";
    for (const uint32_t chunk : train.chunk()) Append(text, " {}", chunk);
    return text;
  }
  if (message.has_evaluate()) {
    return fmt::format("Evaluate {}W({}), blocks {} to {} of the {} set",
                       message.evaluate().average() ? "the average of " : "",
                       message.evaluate().version(), message.evaluate().block_begin(),
                       message.evaluate().block_end(), SetName(message.evaluate().set()));
  }
  if (message.has_activate()) {
    return fmt::format("Activate at W({})", message.activate().version());
  }
  if (message.has_welcome()) return "Welcome";
  if (message.has_reset()) return "Reset";
  if (message.has_stop()) return "Stop: " + message.stop().reason();
  if (message.has_refused()) return "Refused: " + message.refused().reason();
  if (message.has_weights_chunk()) {
    return fmt::format("chunk {} of {}W({})", message.weights_chunk().chunk(),
                       message.weights_chunk().average() ? "the average of " : "",
                       message.weights_chunk().version());
  }
  return "";
}

}  // namespace muster::testing
