#include "ps/record/restart_record.h"

#include <charconv>
#include <chrono>

#include "common/base/error.h"

namespace muster {
namespace {

LostServer ParseLoss(const std::string& argument) {
  const size_t first = argument.find(','), second = argument.find(',', first + 1);
  LostServer loss;
  int64_t step = 0;
  const auto read = [&](size_t from, size_t to, auto& number) {
    const char* const end = argument.data() + to;
    const auto [stop, error] = std::from_chars(argument.data() + from, end, number);
    return error == std::errc() && stop == end;
  };
  if (second == std::string::npos || !read(0, first, step) || !read(first + 1, second, loss.at)) {
    throw Error(ExitCode::kUsage, "--lost {}: expected STEP,SECONDS,CAUSE", argument);
  }
  if (step >= 0) loss.step = step;
  loss.cause = argument.substr(second + 1);
  return loss;
}

}  // namespace

std::vector<LostServer> ParseLosses(const std::vector<std::string>& arguments) {
  std::vector<LostServer> losses;
  losses.reserve(arguments.size());
  for (const std::string& argument : arguments) losses.push_back(ParseLoss(argument));
  return losses;
}

events::Restarted RestartAfter(const LostServer& loss, int64_t from_step) {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  events::Restarted restarted;
  if (loss.step) restarted.set_lost_at_step(*loss.step);
  restarted.set_cause(loss.cause);
  restarted.set_from_step(from_step);
  restarted.set_seconds(now.count() - loss.at);
  return restarted;
}

}  // namespace muster
