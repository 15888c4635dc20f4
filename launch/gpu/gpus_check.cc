#include <fmt/core.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>

#include "common/base/error.h"
#include "common/base/join.h"
#include "launch/gpu/card_hello.h"
#include "launch/gpu/child_task.h"
#include "launch/gpu/cuda_driver.h"
#include "launch/gpu/gpu_probe.h"
#include "launch/gpu/gpus_command.h"
#include "launch/gpu/job_cards.h"
#include "launch/gpu/take_cards.h"
#include "launch/gpu/usage_text.h"
#include "launch/gpu/visible_devices.h"
#include "launch/text/console.h"

namespace muster {
namespace {

constexpr double kCheckSeconds = 120;  // the driver compiles, and a card may have to wake up

std::vector<std::string> NumberTexts(const std::vector<float>& numbers) {
  std::vector<std::string> texts;
  texts.reserve(numbers.size());
  for (const float number : numbers) texts.push_back(fmt::format("{:g}", number));
  return texts;
}

std::string Exercise() {
  const std::vector<std::string> a = NumberTexts({kHelloA, kHelloA + kHelloNumbers});
  const std::vector<std::string> b = NumberTexts({kHelloB, kHelloB + kHelloNumbers});
  return fmt::format("[{}] * [{}]", Join(a, " "), Join(b, " "));
}

// In a process of its own that sees this card alone.
std::vector<float> Multiply(const Gpu& gpu) {
  const std::vector<std::string> answer = RunInChild(
      "CUDA on card " + gpu.index,
      [&gpu] {
        ::setenv("CUDA_VISIBLE_DEVICES", gpu.uuid.c_str(), 1);
        return NumberTexts(MultiplyOnCard(CudaDriver::kLibrary, gpu.uuid));
      },
      kCheckSeconds);
  std::vector<float> products;
  products.reserve(answer.size());
  for (const std::string& text : answer) products.push_back(std::strtof(text.c_str(), nullptr));
  return products;
}

std::optional<TakenCards> TryTake(GpuProbe& probe, const LockFolder& folder, const Gpu& gpu) {
  try {
    return TakeCards(probe, folder, {.pool = {gpu.uuid}, .named = true, .what = "gpus --check"},
                     {.others_choose_s = 1, .say = [](const std::string&) {}});
  } catch (const Error&) {
    const std::vector<std::string> why = UsageLines(probe.Look(), folder, {gpu.uuid}, 0);
    PrintResult(Join(why, "\n") + "; not checked");
    return std::nullopt;
  }
}

// What the towers, one on each card, made so far.
struct Towers {
  std::vector<std::string> cards;
  float sum = 0;
};

// Where each part was computed, and what all of it came to.
void PrintPlacement(const Towers& towers) {
  if (towers.cards.empty()) return;
  std::vector<std::string> lines{"Placement:"};
  for (const std::string& card : towers.cards) {
    lines.push_back(fmt::format("  multiply  card {}", card));
  }
  lines.push_back(fmt::format("  add       CPU: {:g} in all", towers.sum));
  PrintResult(Join(lines, "\n"));
}

// False if the card computed, and wrongly, or could not.
bool CheckCard(GpuProbe& probe, const LockFolder& folder, const Gpu& gpu, Towers& towers) {
  const std::optional<TakenCards> taken = TryTake(probe, folder, gpu);
  if (!taken) return true;
  try {
    const std::vector<float> products = Multiply(gpu);
    const float sum = std::accumulate(products.begin(), products.end(), 0.0f);
    PrintResult(
        fmt::format("{}: {} = [{}]", CardText(gpu), Exercise(), Join(NumberTexts(products), " ")));
    PrintResult(fmt::format("  the CPU adds: {:g}, expected {:g}: {}", sum, kHelloSum,
                            sum == kHelloSum ? "good" : "WRONG"));
    towers.cards.push_back(gpu.index);
    towers.sum += sum;
    return sum == kHelloSum && products.size() == kHelloNumbers;
  } catch (const Error& error) {
    PrintResult(fmt::format("{}: failed: {}", CardText(gpu), error.what()));
    return false;
  }
}

}  // namespace

int CheckGpus() {
  const std::unique_ptr<GpuProbe> probe = OpenNvml();
  const GpuSnapshot seen = probe->Look();
  const VisibleCards visible = VisibleHere(seen);
  if (visible.uuids.empty()) {
    PrintResult(fmt::format(
        "No cards: {}. With one it would multiply {} there, and add the "
        "products here: {:g}.",
        seen.none.empty() ? "CUDA_VISIBLE_DEVICES leaves none" : seen.none, Exercise(), kHelloSum));
    return 0;
  }
  const LockFolder folder = LockFolder::OfHost();
  bool good = true;
  Towers towers;
  for (const std::string& uuid : visible.uuids) {
    if (const Gpu* const gpu = seen.Find(uuid)) good &= CheckCard(*probe, folder, *gpu, towers);
  }
  PrintPlacement(towers);
  return good ? 0 : static_cast<int>(ExitCode::kFailure);
}

}  // namespace muster
